# SPDX-License-Identifier: Apache-2.0
# For tools/check/circles.sh: prints the cycles of one folder and fails if there are any. Standard input: the output of `nm -A -P -g`.

{
  file = $1
  sub(/\.o:$/, "", file)
  sub(/.*\//, "", file)
  if (!(file in number)) { number[file] = ++count; name[count] = file }
  if ($3 ~ /^[Uw]$/) { user[++uses] = file; symbol[uses] = $2 } else home[$2] = file
}

function walk(from, at,  to) {
  for (to = 1; to <= count; to++)
    if (((at, to) in arrow) && !((from, to) in reach)) { reach[from, to]; walk(from, to) }
}
function in_cycle(a, b) { return ((a, b) in reach) && ((b, a) in reach) }
function show(file,  a, b) {
  printf "%s: a cycle of files:", folder
  for (a = 1; a <= count; a++) if (in_cycle(file, a)) { seen[a]; printf " %s", name[a] }
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
  for (file = 1; file <= count; file++)
    if (in_cycle(file, file) && !(file in seen)) { show(file); bad = 1 }
  exit bad
}
