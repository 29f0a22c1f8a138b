#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks size limits and banned calls: functions have at most 80 lines, files 1000, lines 100 columns; every file has a licence line. Python
# with its build tools does not grow beyond one in ten of the product's lines of release 0.13: a ratio to today's lines would fall with each
# formula that replaces C. Examples and benchmarks are programs that use it and do not count. The library neither prints nor exits.
set -u
status=0
complain() { echo "$1"; status=1; }

sources=$(git ls-files 'src/*.[ch]' 'include/*.h' 'backends/*.[ch]' 'backends/*.cu' 'backends/*.cc' 'python/ext/*.[ch]' 'tools/*.[ch]' 'tests/*.[ch]' 'examples/*.c' 'bench/*.c')
# Data tables are exempt.
exempt='tests/unit/print_golden.h python/ext/declare/missing.h'
for file in $sources; do
  [ -f "$file" ] || continue
  case " $exempt " in *" $file "*) continue ;; esac
  head -3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || complain "$file: no licence line"
  lines=$(wc -l <"$file")
  [ "$lines" -le 1000 ] || complain "$file: $lines lines, 1000 at most"
  # Lines with one long string or URL may be longer.
  LC_ALL=C awk -v f="$file" '{ gsub(/[\200-\277]/, "") } length($0) > 100 && !/"[^"]{60,}"/ && !/https?:/ { print f ":" FNR ": " length($0) " columns"; bad = 1 } END { exit bad }' "$file" || status=1
  awk -v f="$file" '
    /^[a-zA-Z_].*\{$/ && !/^(typedef |static const |const )?(struct|union|enum)( |\{)/ && !/^extern "C"/ && !/=[^=]*\{$/ { start = FNR; name = $0 }
    /^\}/ && start { if (FNR - start > 80) { print f ":" start ": a function of " FNR - start " lines"; bad = 1 } start = 0 }
    END { exit bad }' "$file" || status=1
done
for file in $(git ls-files 'src/*.[ch]' 'backends/*.[ch]'); do
  [ -f "$file" ] || continue
  if grep -nE '(^|[^a-zA-Z_>.])(abort|exit|_exit|longjmp|setjmp|printf|puts|perror|strcpy|strcat|sprintf|gets|alloca)\(' "$file" | grep -vE '^[0-9]+: *(//|\*)' | sed "s|^|$file:|" | grep -vE '// .*(exit|abort|printf)\('; then
    complain "$file: a banned call"
  fi
done

count() { cat /dev/null $(git ls-files "$@") | grep -cvE '^\s*(//.*|#.*)?$'; }
python=$(count 'python/*.py' 'tools/*.py')
[ "$python" -le 16700 ] || complain "Python is $python lines, 16,700 at most"
exit $status
