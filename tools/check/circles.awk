# SPDX-License-Identifier: Apache-2.0
# For tools/check/circles.sh: prints the cycles of one folder. Standard input: the output of `nm -A -P -g`; second file: the known cycles. Variables:
# folder; known: the second file, or /dev/null to print all cycles.

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
function in_cycle(a, b) { return ((a, b) in reach) && ((b, a) in reach) }

# Returns the listed cycle that contains all files of the cycle of `file`; 0 if there is none.
function known_cycle(file,  i, other, fits) {
  for (i = 1; i <= listed; i++) {
    fits = 1
    for (other = 1; other <= count; other++)
      if (in_cycle(file, other) && !((i, name[other]) in listing)) fits = 0
    if (fits) return i
  }
  return 0
}
function show(file, size,  a, b) {
  printf "%s: a cycle of %d files:", folder, size
  for (a = 1; a <= count; a++) if (in_cycle(file, a)) printf " %s", name[a]
  print ""
  for (a = 1; a <= count; a++) for (b = 1; b <= count; b++)
    if (in_cycle(file, a) && in_cycle(file, b) && ((a, b) in arrow)) print "  " name[a] " -> " name[b] ":" arrow[a, b]
}

END {
  for (i = 1; i <= uses; i++) {
    if (!(symbol[i] in home) || home[symbol[i]] == user[i]) continue
    from = number[user[i]]; to = number[home[symbol[i]]]
    arrow[from, to] = arrow[from, to] " " symbol[i]
  }
  for (file = 1; file <= count; file++) walk(file, file)
  for (file = 1; file <= count; file++) {
    if (!in_cycle(file, file) || (file in seen)) continue
    size = 0
    for (other = file; other <= count; other++) if (in_cycle(file, other)) { seen[other]; size++ }
    here = known == "/dev/null" ? 0 : known_cycle(file)
    if (here) { found[here] = size; continue }
    show(file, size)
    bad = 1
  }
  for (i = 1; i <= listed; i++)
    if (found[i] != sizes[i]) print "tools/check/circles.txt: a cycle of " folder " is smaller now or gone: " found[i] + 0 " of " sizes[i] " files"
  exit bad
}
