// SPDX-License-Identifier: Apache-2.0
// Values as trees, for arguments and results.
#include "script/script_impl.h"

static px_status parts_from(px__var *out, px_script *script, const px_tree *tree, px__sort sort,
                            int depth) {
  PX__SCOPED_VAR made = {0};
  PX_TRY(px__box_new(&made, script, sort));
  for (int64_t i = 0; i < px_tree_size(tree); i++) {
    PX__SCOPED_VAR key = {0}, value = {0};
    PX_TRY(px__from_tree(&value, script, px_tree_at(tree, i), depth + 1));
    if (sort == PX__DICT) PX_TRY(px__from_tree(&key, script, px_tree_key(tree, i), depth + 1));
    PX_TRY(sort == PX__DICT ? px__dict_set(made.v.box, key, value) : px__push(made.v.box, value));
  }
  *out = px__var_move(&made);
  return PX_OK;
}

px_status px__from_tree(px__var *out, px_script *script, const px_tree *tree, int depth) {
  px_scalar number = px_tree_get_number(tree);
  px_tree_kind kind = px_tree_kind_of(tree);
  PX_CHECK(depth < PX_TREE_DEPTH, PX_VALUE, "expected arguments nested at most %d levels deep",
           PX_TREE_DEPTH);
  switch (kind) {
    case PX_TREE_NONE:
      return *out = px__none(), PX_OK;
    case PX_TREE_NUMBER:
      *out = number.kind == 'f'   ? px__of_float(number.v.f)
             : number.kind == 'b' ? px__of_bool(number.v.i)
                                  : px__of_int(number.v.i);
      return PX_OK;
    case PX_TREE_TEXT:
      return px__text_new(out, script, px_tree_get_text(tree), strlen(px_tree_get_text(tree)));
    case PX_TREE_DTYPE:
      return *out = px__of_int(px__dtype_number(px_tree_get_dtype(tree))), PX_OK;
    case PX_TREE_DEVICE:
      return *out = (px__var){PX__DEVICE, {.device = px_tree_get_device(tree)}}, PX_OK;
    case PX_TREE_TENSOR:
      return *out = px__of_tensor(px_retain(px_tree_get_tensor(tree))), PX_OK;
    case PX_TREE_LIST:
    case PX_TREE_SIZE:
      return parts_from(out, script, tree, PX__LIST, depth);
    case PX_TREE_TUPLE:
      return parts_from(out, script, tree, PX__TUPLE, depth);
    case PX_TREE_DICT:
    case PX_TREE_ORDERED:
      return parts_from(out, script, tree, PX__DICT, depth);
    default:
      PX_FAIL(PX_TYPE, "a tensor of an unsupported dtype cannot be an argument of a script");
  }
}

static px_status parts_to(px_tree **out, const px__box *box, px_tree_kind kind, int depth) {
  PX_SCOPED(px_tree) made = NULL;
  PX_TRY(px_tree_new(&made, kind));
  for (int64_t i = 0; i < box->count; i++) {
    PX_SCOPED(px_tree) part = NULL;
    PX_SCOPED(px_tree) value = NULL;
    PX_TRY(px__to_tree(&part, box->items[i], depth + 1));
    if (kind == PX_TREE_DICT) PX_TRY(px__to_tree(&value, box->items[++i], depth + 1));
    PX_TRY(kind == PX_TREE_DICT ? px_tree_add(made, part, value) : px_tree_append(made, part));
  }
  *out = PX_MOVE(made);
  return PX_OK;
}

px_status px__to_tree(px_tree **out, px__var v, int depth) {
  bool named = v.sort == PX__OBJECT && px__is(v.v.box->definition->base, "NamedTuple");
  PX_CHECK(depth < PX_TREE_DEPTH, PX_VALUE, "the result is nested deeper than %d levels",
           PX_TREE_DEPTH);
  switch (v.sort) {
    case PX__NONE:
      return px_tree_none(out);
    case PX__BOOL:
    case PX__INT:
    case PX__FLOAT:
      return px_tree_number(out, px__to_scalar(v));
    case PX__TEXT:
      return px_tree_text(out, v.v.box->text);
    case PX__DEVICE:
      return px_tree_device(out, v.v.device);
    case PX__TENSOR:
      return px_tree_tensor(out, v.v.tensor);
    case PX__LIST:
      return parts_to(out, v.v.box, PX_TREE_LIST, depth);
    case PX__DICT:
      return parts_to(out, v.v.box, PX_TREE_DICT, depth);
    case PX__TUPLE:
      return parts_to(out, v.v.box, PX_TREE_TUPLE, depth);
    default:
      if (named) return parts_to(out, v.v.box, PX_TREE_TUPLE, depth);
      PX_FAIL(PX_TYPE, "a value of type '%s' cannot leave the script", px__sort_name(v));
  }
}
