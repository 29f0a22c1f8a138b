// SPDX-License-Identifier: Apache-2.0
// Names that Python shares between several ops (tried in order of rank), and second names.
// A data table: the signatures themselves come from the core's descriptors.
#pragma once

static const struct {
  const char *op, *name;
  int rank;
} overloads[] = {
    {"max_dim", "max", 1},
    {"max_other", "max", 2},
    {"min_dim", "min", 1},
    {"min_other", "min", 2},
};

static const struct {
  char space, from;
  const char *alias, *name;
} op_aliases[] = {
    {'f', 'f', "absolute", "abs"},
    {'m', 'm', "absolute", "abs"},
};
