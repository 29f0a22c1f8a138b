// SPDX-License-Identifier: Apache-2.0
// Free memory ordered by size and then address: a treap with a hash of the address as priority. Its
// shape depends only on its contents.
#include "device/core/state.h"

static uint64_t priority_of(const px__tree_node *node) {
  uint64_t x = (uint64_t)node->address * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29);
}
static bool before(size_t size, uintptr_t address, const px__tree_node *node) {
  return size != node->size ? size < node->size : address < node->address;
}

void px__tree_insert(px__tree_node **root, px__tree_node *node) {
  uint64_t priority = priority_of(node);
  while (*root && priority_of(*root) >= priority)
    root = before(node->size, node->address, *root) ? &(*root)->left : &(*root)->right;
  // Splits the subtree around the new node.
  px__tree_node *rest = *root, **less = &node->left, **more = &node->right;
  *root = node;
  while (rest) {
    if (before(node->size, node->address, rest)) {
      *more = rest, more = &rest->left, rest = rest->left;
    } else {
      *less = rest, less = &rest->right, rest = rest->right;
    }
  }
  *less = *more = NULL;
}

void px__tree_remove(px__tree_node **root, px__tree_node *node) {
  while (*root != node)
    root = before(node->size, node->address, *root) ? &(*root)->left : &(*root)->right;
  px__tree_node *left = node->left, *right = node->right;
  while (left && right) {
    if (priority_of(left) >= priority_of(right)) {
      *root = left, root = &left->right, left = left->right;
    } else {
      *root = right, root = &right->left, right = right->left;
    }
  }
  *root = left ? left : right;
}

static px__tree_node *first_from(px__tree_node *root, size_t size, uintptr_t address) {
  px__tree_node *best = NULL;
  while (root) {
    bool fits =
        !before(root->size, root->address, &(px__tree_node){.size = size, .address = address});
    if (fits) best = root;
    root = fits ? root->left : root->right;
  }
  return best;
}

px__tree_node *px__tree_lower_bound(px__tree_node *root, size_t size) {
  return first_from(root, size, 0);
}

px__tree_node *px__tree_next(px__tree_node *root, px__tree_node *of) {
  return first_from(root, of->size, of->address + 1);
}
