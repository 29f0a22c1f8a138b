# SPDX-License-Identifier: Apache-2.0
# Sourced by script/test and script/test-gpu: runs steps in parallel, reports each when it ends, and counts results.
# $jobs: the number of parallel steps. $limit: the time limit of a step in seconds. $lines: the number of log lines shown of a failed step.
# $skips: whether reasons of skipped tests are shown.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
exec 8>"$logs/lock"
began=$SECONDS
# On a terminal the last line shows the steps done, the time, and the step started last.
[ -t 1 ] && clear=$'\r\e[K' || clear=

count() { sed -n "s/.*\b\([0-9]\+\) $1.*/\1/p" <<<"$2"; } # count WORD LINE: prints the number before WORD, or nothing

# reasons: prints skipped tests grouped by reason. Python's tests print "skip NAME: REASON"; C's print "skipped: REASON" and then "skip NAME";
# acceptance programs print "skip NAME" if devices are missing.
reasons() {
  awk '/^skipped: / {last = substr($0, 10); next}
       {name = $2; why = last != "" ? last : "more devices are wanted"; last = ""
        if (sub(/:$/, "", name)) {why = $0; sub(/^skip [^ ]* /, "", why)}
        names[why] = names[why] " " name; n[why]++}
       END {for (why in n) print "    " n[why] " skipped, " why (n[why] > 8 ? "" : ":" names[why])}'
}
# report NAME CODE LOG SECONDS: reports the result of a step. A step without a summary line counts as one test.
report() {
  local line bad
  if [ "$2" = 77 ]; then # a C test skipped in its own process
    skip "$1" "$(sed -n 's/^skipped: //p' "$3")"
    return
  fi
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$3" | tail -1)
  [ -n "$line" ] || line="$(($2 == 0)) passed, $(($2 != 0)) failed"
  bad=$(count failed "$line")
  # compute-sanitizer complains about a passing test that did not use the device.
  grep -q 'terminated before first instrumented API call' "$3" && set -- "$1" "$bad" "$3" "$4"
  [ "$bad" = 0 ] && [ "$2" != 0 ] && bad=1
  echo "$(count passed "$line") $bad $(count skipped "$line")" >>"$logs/sums"
  echo "$clear$1: $line$([ "$2" = 0 ] || echo " (exit $2)"), $4 s"
  [ "$skips" = no ] || grep -E '^skip(ped:)? ' "$3" | reasons
  if [ "$2" != 0 ]; then
    echo "$1" $(sed -nE 's/^(FAIL|ERROR):? +([^ :]*).*/\2/p' "$3" | sort -u | head -8) >>"$logs/bad"
    grep -E '^(FAIL|ERROR)[: ]' "$3" | sort | uniq -c | head -80
    grep -vE '^(ok|skip) |\.\.\. (ok|skipped .*)$' "$3" | tail -"$lines" | sed 's/^/    /'
  fi
}
# step NAME COMMAND...: runs a step in parallel with others.
step() {
  local name=$1 log
  shift
  log=$(mktemp -p "$logs")
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  [ -z "$clear" ] || printf '%s%d done, %d:%02d, running %s' "$clear" "$(cat "$logs/sums" 2>/dev/null | wc -l)" \
    $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) "$name"
  {
    SECONDS=0
    timeout "$limit" "$@" >"$log" 2>&1
    code=$? seconds=$SECONDS
    flock 8
    report "$name" $code "$log" $seconds
    flock -u 8
    rm "$log"
  } &
}
# first NAME COMMAND...: runs a step required by later ones, and waits for it alone.
first() {
  step "$@"
  wait $!
}
# alone NAME COMMAND...: runs a step exclusively.
alone() {
  wait
  step "$@"
  wait
}
skip() { # skip NAME REASON
  echo "$clear$1: skipped: $2"
  echo "0 0 1" >>"$logs/sums"
}
# total: waits for all steps, lists failed steps and tests, and prints the sums. Fails if any step failed.
total() {
  wait
  printf %s "$clear"
  [ ! -e "$logs/bad" ] || sed 's/^/failed: /' "$logs/bad"
  awk -v skips=$skips '{p += $1; f += $2; s += $3}
    END {printf "%d passed, %d failed", p, f; if (skips != "no") printf ", %d skipped", s; print ""; exit f > 0}' "$logs/sums"
}
