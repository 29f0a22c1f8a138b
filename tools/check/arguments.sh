#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks that arguments are accessed by name, not by index: in run functions, rules, gradient functions, kernels and layers (ops/GRAMMAR.md,
# "Arguments in C"), and in functions called from Python (EXT_ARGS, EXT_UNPACK_ARGS). In code for any op, the first argument is PX__SELF. The first
# operand of a launch is its result. Array declarations are excluded.
set -u
cd "$(dirname "$0")/../.."
found=$(grep -rnE '\b(args|inputs|params|values)\[[0-9]+\]|\boperands\[[1-9]|\bp(\.|->)(in|out)\[[0-9]+\]|px__arg_tensor\([^()]*, [0-9]' src backends python/ext --include='*.[ch]' --include='*.cu' --include='*.cuh' |
  grep -vE '\b(px_(value|named_value|tensor|operand|param)|char|double|void|int64_t|PyObject) \*?(const )?\*?(args|inputs|params|values|operands)\[' |
  grep -vE ':[0-9]+: *(//|")')
[ -z "$found" ] && exit 0
echo "$found" | sed 's/$/   <- an argument accessed by index/'
exit 1
