#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No argument goes by number: run functions, rules, gradient functions, kernels and layers have theirs by name (ops/GRAMMAR.md, "Arguments in
# C"), and so has what Python calls (EXT_ARGS, EXT_PLACES). Where code serves any op, the first argument is PX__SELF. The first operand of a
# launch is its result. Declarations of arrays are not meant.
set -u
cd "$(dirname "$0")/../.."
found=$(grep -rnE '\b(args|inputs|params|values)\[[0-9]+\]|\boperands\[[1-9]|\bp(\.|->)(in|out)\[[0-9]+\]|px__arg_tensor\([^()]*, [0-9]' src backends python/ext --include='*.[ch]' --include='*.cu' --include='*.cuh' |
  grep -vE '\b(px_(value|named_value|tensor|operand|param)|char|double|void|int64_t|PyObject) \*?(const )?\*?(args|inputs|params|values|operands)\[' |
  grep -vE ':[0-9]+: *(//|")')
[ -z "$found" ] && exit 0
echo "$found" | sed 's/$/   <- an argument by number/'
exit 1
