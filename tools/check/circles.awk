# SPDX-License-Identifier: Apache-2.0
# For tools/check/circles.sh: the circles of one folder, from the lines of `nm -A -P -g` on standard input; a second file lists the known ones.
# Variables: folder, and known, /dev/null where all are to be printed.

FILENAME == "-" {
  file = $1
  sub(/\.o:$/, "", file)
  sub(/.*\//, "", file)
  if (!(file in number)) { number[file] = ++count; name[count] = file }
  if ($3 ~ /^[Uw]$/) { user[++uses] = file; symbol[uses] = $2 } else home[$2] = file
}
FILENAME != "-" && $1 == folder ":" {
  listed++
  for (i = 2; i <= NF && $i != "#"; i++) { listing[listed, $i]; sizes[listed]++ }
}

function walk(from, at,  to) {
  for (to = 1; to <= count; to++)
    if (((at, to) in arrow) && !((from, to) in reach)) { reach[from, to]; walk(from, to) }
}
function together(a, b) { return ((a, b) in reach) && ((b, a) in reach) }

# The listed circle that has all files of the circle of `file`; 0 where none has.
function known_circle(file,  i, other, fits) {
  for (i = 1; i <= listed; i++) {
    fits = 1
    for (other = 1; other <= count; other++)
      if (together(file, other) && !((i, name[other]) in listing)) fits = 0
    if (fits) return i
  }
  return 0
}
function show(file, size,  a, b) {
  printf "%s: a circle of %d files:", folder, size
  for (a = 1; a <= count; a++) if (together(file, a)) printf " %s", name[a]
  print ""
  for (a = 1; a <= count; a++) for (b = 1; b <= count; b++)
    if (together(file, a) && together(file, b) && ((a, b) in arrow)) print "  " name[a] " -> " name[b] ":" arrow[a, b]
}

END {
  for (i = 1; i <= uses; i++) {
    if (!(symbol[i] in home) || home[symbol[i]] == user[i]) continue
    from = number[user[i]]; to = number[home[symbol[i]]]
    arrow[from, to] = arrow[from, to] " " symbol[i]
  }
  for (file = 1; file <= count; file++) walk(file, file)
  for (file = 1; file <= count; file++) {
    if (!together(file, file) || (file in seen)) continue
    size = 0
    for (other = file; other <= count; other++) if (together(file, other)) { seen[other]; size++ }
    here = known == "/dev/null" ? 0 : known_circle(file)
    if (here) { found[here] = size; continue }
    show(file, size)
    bad = 1
  }
  for (i = 1; i <= listed; i++)
    if (found[i] != sizes[i]) print "tools/check/circles.txt: a circle of " folder " is smaller now, or gone: " found[i] + 0 " of " sizes[i] " files"
  exit bad
}
