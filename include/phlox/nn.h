// SPDX-License-Identifier: Apache-2.0
// Modules: named parameters, buffers and child modules, and a forward function.
//
// Each module has a kind: a constant descriptor with constructor arguments (defining constructor,
// attributes and printed form), an init function and a forward function. The library's kinds are
// generated from layers/*.layer; phlox/layers.h has their constructors. A subclass in another
// language is a separate kind. A parameter is a leaf tensor with px_tensor_is_parameter. Several
// threads may call a module at once if none changes it (docs/reference/threads.md).
#pragma once
#include "phlox/autograd.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct px_module px_module;

// An ordered map of names to tensors (a state_dict). Setting an existing name replaces its tensor.
typedef struct px_dict px_dict;
PX_CALL px_dict_new(px_dict **out);
PX_CALL px_dict_set(px_dict *dict, const char *name, px_tensor *value);
PX_API px_tensor *px_dict_get(const px_dict *dict, const char *name);  // borrowed, NULL if absent
PX_API int64_t px_dict_size(const px_dict *dict);
PX_API const char *px_dict_name(const px_dict *dict, int64_t i);  // NULL past the end
PX_API px_tensor *px_dict_value(const px_dict *dict, int64_t i);

// A forward function with `count` inputs. out[i] is the i-th result; all are NULL before the call.
// Most kinds have one result.
typedef px_status (*px_module_function)(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                        int count);
// A lazy module infers a size from its first input: `size` is the attribute (0 until then),
// `becomes` the kind afterwards, `dim` the input dimension. The input must have `min_dims` to
// `max_dims` dimensions; 0 and 0: any number.
typedef struct px_module_lazy {
  const char *size, *becomes;
  int dim, min_dims, max_dims;
} px_module_lazy;

// An input or result: one tensor, or several consecutive ones, a tuple in Python. An optional input
// may be NULL or, with all later inputs, omitted.
typedef struct px_module_port {
  const char *name;  // "hx"
  int tensors;
  bool optional;
  bool numbers;  // embedding languages may pass a list of integers
} px_module_port;
// A named method with arguments beyond tensors: `forward`, or a part of it that a subclass in
// another language may override. `args` are values of all parameters. out[i] is the i-th result,
// NULL before the call.
typedef struct px_module_method {
  const char *name;       // "forward"
  const char *signature;  // "(src: Tensor, src_mask: Tensor | None = None) -> Tensor"
  const px_param *params;
  int param_count;
  px_status (*run)(px_tensor **out, px_module *self, const px_value *args);
} px_module_method;

// Descriptor of a kind of module.
typedef struct px_module_kind {
  const char *name;  // "Linear"
  // Python's help text: signature, "--", a sentence, arguments, shapes, errors, examples; or NULL.
  const char *doc;
  // Constructor arguments, stored as attributes; for a lazy kind followed by its size.
  const px_param *params;
  int param_count;
  // Makes parameters and buffers from the attributes; NULL if there are none.
  px_status (*init)(px_module *self);
  px_module_function forward;  // NULL: the module cannot be called
  // pair: forward with a second result (the indices of MaxPool2d(return_indices=True)), NULL if the
  // arguments do not request it. sized: forward with the result's size as an input.
  px_status (*pair)(px_tensor **out, px_tensor **second, px_module *self, px_tensor *const *inputs,
                    int count);
  px_status (*sized)(px_tensor **out, px_module *self, px_tensor *const *inputs, px_value sizes);
  // The text between the parentheses of the printed form: a template, or repr_fn; NULL: none. In a
  // template, {name} is an attribute's value (for a tensor: whether it is present). A part in [...]
  // is omitted if all its names have their defaults; [a|b] prints the first part not omitted.
  const char *repr;
  const char *formula;  // a description of forward, for bindings with replaceable functions
  void (*repr_fn)(const px_module *self, char *text, size_t capacity);
  const px_module_port *inputs;  // ("input", "target"), or NULL: tensors
  int input_count;
  const px_module_port *results;  // NULL: one tensor
  int result_count;
  const char *const *tensors;  // names of the parameters and buffers read by forward
  int tensor_count;
  bool starts;                 // has tensors to be re-initialised by px_module_reset
  const px_module_lazy *lazy;  // NULL: all sizes are arguments
  // The same if attributes determine their number: writes the i-th name; false past the end.
  bool (*tensor_name)(const px_module *self, int i, char *name, size_t capacity);
  const char *base;          // the kind whose class is the base of this one's, or NULL
  const char *const *fixed;  // NULL-terminated attributes that are not arguments; or NULL: none
  // Methods; the first is forward, if it takes more than tensors. `inputs` are the tensors among
  // its parameters.
  const px_module_method *methods;
  int method_count;
  const char *named;     // Python's name of the tuple of results, or NULL
  const char *callable;  // argument that may be a function in another language, or NULL
  // Arguments with strict types in another language, or NULL, and the error text: %1$s is the
  // argument, %2$s its type, %3$s the type passed.
  const char *typed, *typed_text;
  // For kinds of another language.
  void (*release)(void *context);
} px_module_kind;

// For `output_size` of adaptive pooling layers: the input's size. Python's None.
#define PX_OWN_SIZE INT64_MIN
// "None" as an explicit argument; PX_NONE() means the default.
static inline px_value PX_GIVEN_NONE(void) {
  px_value none = PX_NONE();
  none.category = 'n';
  return none;
}

// Constructors with named arguments (phlox/layers.h) initialise a struct with the defaults,
// override fields and pass it to a function px_NAME_make. PX_SIZES(3, 5) passes a list for a
// number; PX_NO_INT and PX_NO_FLOAT are None. Example: px_conv2d_new(&m, 1, 32, 3, .padding = 1).
// PX_SIZES becomes a list with commas only within the second of a constructor's two macros.
// clang-format off
#define PX_SIZES(...) PX_SIZES_ PX_NOTHING()(__VA_ARGS__)
#define PX_SIZES_(...) {__VA_ARGS__}
#define PX_NOTHING()
// clang-format on
#define PX_NO_INT INT64_MIN
#define PX_NO_FLOAT __builtin_nan("")
#define PX_BY_NAME(make, type, defaults, ...) \
  __extension__({ \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"") \
        _Pragma("GCC diagnostic ignored \"-Wmissing-braces\"") \
            const type px_args_ = {defaults, __VA_ARGS__}; \
    _Pragma("GCC diagnostic pop") make(&px_args_); \
  })

// Return the i-th kind of the library, ordered by name, or a kind by name; NULL if there is none.
PX_API const px_module_kind *px_module_kind_at(int i);
PX_API const px_module_kind *px_module_kind_find(const char *name);

// Makes a module. `args` are kind->param_count values: PX_ARG_NONE means the default,
// PX_GIVEN_NONE() None. `context` belongs to the kind. PX_VALUE and PX_TYPE, with PyTorch's texts,
// for invalid arguments.
PX_CALL px_module_new(px_module **out, const px_module_kind *kind, const px_value *args,
                      void *context);
PX_API const px_module_kind *px_module_kind_of(const px_module *self);
// Sets the kind of an empty module without one, for bindings that restore a module from parts, or
// changes the kind of a lazy module.
PX_CALL px_module_adopt_kind(px_module *self, const px_module_kind *kind);
PX_API void *px_module_context(const px_module *self);
PX_API void *px_module_user(const px_module *self);  // the embedding language's object, borrowed
PX_API void px_module_set_user(px_module *self, void *user);
// Replaces the module's forward by another language's function, called between the hooks; NULL
// restores the kind's. The function takes 0 to 4 inputs.
PX_API void px_module_set_forward(px_module *self, px_module_function forward);
// The same for px_module_invoke. The function looks up the method, or the function or tensor, by
// name. NULL: the kind's methods only.
struct px_named_value;
typedef px_status (*px_module_invoker)(px_tensor **results, int result_count, px_module *self,
                                       const char *method, const struct px_named_value *args,
                                       int count);
PX_API void px_module_set_invoke(px_module *self, px_module_invoker invoke);

// Makes a Sequential of `count` modules, named 0, 1, ..., which it retains.
PX_CALL px_sequential_new(px_module **out, px_module *const *children, int count);
// Make a stack of `count` copies of a layer, with separate parameters of equal initial values, and
// a final `norm` (retained; may be NULL). The layer is called like TransformerEncoderLayer or
// TransformerDecoderLayer.
//   px_transformer_encoder_layer_new(&layer, 512, 8, .batch_first = true);
//   px_transformer_encoder_new(&encoder, layer, 6, NULL);
PX_CALL px_transformer_encoder_new(px_module **out, px_module *layer, int64_t count,
                                   px_module *norm);
PX_CALL px_transformer_decoder_new(px_module **out, px_module *layer, int64_t count,
                                   px_module *norm);

// ---- contents

// Set or read an attribute: a number, a list of at most 8 integers, or a text. Reading a missing
// one returns kind PX_ARG_NONE.
PX_CALL px_module_set_attribute(px_module *self, const char *name, px_value value);
PX_API px_value px_module_attribute(const px_module *self, const char *name);
// Register an entry, retained by the module, or replace the entry of that name. A NULL parameter or
// buffer reserves the name and its position. PX_KEY "attribute 'weight' already exists" if an entry
// of another sort has the name.
PX_CALL px_module_register_parameter(px_module *self, const char *name, px_tensor *parameter);
PX_CALL px_module_register_buffer(px_module *self, const char *name, px_tensor *buffer,
                                  bool persistent);
PX_CALL px_module_register_module(px_module *self, const char *name, px_module *child);
// Removes an entry of any sort by name. PX_ATTRIBUTE if there is none.
PX_CALL px_module_remove(px_module *self, const char *name);

typedef enum px_entry_sort {
  PX_ENTRY_PARAMETER = 1,
  PX_ENTRY_BUFFER = 2,
  PX_ENTRY_MODULE = 4
} px_entry_sort;
typedef struct px_module_entry {
  const char *name;  // borrowed
  px_entry_sort sort;
  bool persistent;    // for buffers
  px_tensor *tensor;  // borrowed; may be NULL
  px_module *module;  // borrowed; may be NULL
} px_module_entry;
// Return the i-th entry of the given sorts, in order of registration, or an entry by name; false if
// there is none. Entries of children are not included. px_module_entry_at takes time in proportion
// to i if the module also has entries of other sorts, or if entries have been removed.
PX_API bool px_module_entry_at(const px_module *self, int sorts, int i, px_module_entry *out);
PX_API bool px_module_entry_find(const px_module *self, const char *name, px_module_entry *out);
// Returns the next entry of the given sorts, in constant time. *position is 0 before the first one.
//   for (int at = 0; px_module_entry_next(module, PX_ENTRY_MODULE, &at, &entry);) ...
PX_API bool px_module_entry_next(const px_module *self, int sorts, int *position,
                                 px_module_entry *out);
// Bracket the use of borrowed entries, attributes and hooks if another thread may change the
// module. Those found after px_module_read_begin stay valid until px_module_read_end, which takes
// its result. Brackets nest. Other functions of modules need none.
PX_API int px_module_read_begin(px_module *self);
PX_API void px_module_read_end(px_module *self, int reader);
// Replaces the entry of the same name, of any sort, without the checks of the register functions.
// The module retains the new entry.
PX_CALL px_module_put(px_module *self, const px_module_entry *entry);
// Calls `visit` for the entries of self and, with `recurse`, of its descendants, in depth-first
// order. A tensor or module occurring several times is visited once, unless `duplicates`. `name` is
// the dotted full name, valid during the call. With PX_ENTRY_MODULE, self comes first, named
// `prefix`.
typedef px_status (*px_module_visitor)(const char *name, const px_module_entry *entry,
                                       px_module *owner, void *context);
PX_CALL px_module_walk(px_module *self, int sorts, const char *prefix, bool recurse,
                       bool duplicates, px_module_visitor visit, void *context);
// Attributes the calling thread's later work to the module for operation counts (phlox/flops.h),
// until px_flops_leave. For code that runs modules by other means than px_module_forward.
// class_name: the name of a root module; NULL: its kind.
PX_CALL px_module_count_flops(px_module *self, const char *class_name);
// Returns all parameters of self and its descendants, each once.
PX_CALL px_module_parameters(px_list **out, px_module *self);

// ---- use

// Calls the module: hooks before forward, forward, hooks after it. Returns the first result.
PX_CALL px_module_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
// The same, for one input.
PX_CALL px_module_call(px_tensor **out, px_module *self, px_tensor *input);
// The same, for the first `result_count` results, each a new reference:
//   px_tensor *inputs[] = {x, h, c}, *results[3];  // or x alone: zero initial states
//   PX_TRY(px_module_forward_all(results, 3, lstm, inputs, 3));  // output, final h and c
// A packed sequence is its data as the first input and its batch_sizes as the last, after the
// states.
PX_CALL px_module_forward_all(px_tensor **results, int result_count, px_module *self,
                              px_tensor *const *inputs, int count);
// Calls a method by name, with positional (unnamed) and named arguments; missing ones have their
// defaults. `forward` runs with its hooks. A kind without methods has only forward, with tensor
// arguments. PX_TYPE for arguments that do not match, PX_ATTRIBUTE for an unknown method.
//   px_tensor *results[2];  // the output, and the weights (NULL here)
//   px_module_invoke(results, 2, attention, "forward",
//                    (px_named_value[]){{NULL, PX_T(q)}, {NULL, PX_T(k)}, {NULL, PX_T(v)},
//                                       {"need_weights", PX_B(false)}}, 4);
typedef struct px_named_value {
  const char *name;
  px_value value;
} px_named_value;
PX_CALL px_module_invoke(px_tensor **results, int result_count, px_module *self, const char *method,
                         const px_named_value *args, int count);
// Writes the name of the i-th parameter or buffer read by the kind's forward; false past the end.
PX_API bool px_module_tensor_name(const px_module *self, int i, char *name, size_t capacity);
// Returns the total number of tensors of `count` inputs or results.
PX_API int px_module_port_tensors(const px_module_port *ports, int count);
// A forward hook. Before forward (`result` is NULL) it may replace the first input, after forward
// the first result: *replacement is then a new reference. Hooks run in the order added. A hook
// added during a call first runs in the next call.
typedef px_status (*px_module_hook)(px_tensor **replacement, px_module *self,
                                    px_tensor *const *inputs, int count, px_tensor *result,
                                    void *context);
// Adds a hook. Removing it or destroying the module calls release(context); `release` may be NULL.
PX_CALL px_module_add_hook(int64_t *id, px_module *self, bool before, px_module_hook hook,
                           void *context, void (*release)(void *context));
PX_API void px_module_remove_hook(px_module *self, int64_t id);
// Infers the sizes of a lazy module from an input and initialises its tensors, if still pending.
// The first call does this implicitly; the module then changes to its final kind.
PX_CALL px_module_infer(px_module *self, px_tensor *input);
// Re-initialises the tensors of a layer; random values are drawn again.
PX_CALL px_module_reset(px_module *self);
typedef struct px_hook_entry {
  int64_t id;
  bool before;
  px_module_hook run;
  void *context;
  void (*release)(void *context);
} px_hook_entry;
PX_API bool px_module_has_hooks(const px_module *self);
PX_API bool px_module_hook_at(const px_module *self, int i,
                              px_hook_entry *out);  // false past the end
// Calls a module for another language, with arguments and results of any type: hooks before
// forward, forward, hooks after it. Each goes through a function of `way`, which receives `call`.
typedef struct px_module_runner {
  px_status (*hook)(px_module *self, const px_hook_entry *hook, void *call);
  px_status (*forward)(px_module *self, void *call);
} px_module_runner;
PX_CALL px_module_run(px_module *self, const px_module_runner *way, void *call);
// The same for the forward of a Sequential: calls step(child, value) for each child in order. The
// step replaces `value` by the child's result. A child may be NULL.
typedef px_status (*px_module_step)(px_module *child, void *value);
PX_CALL px_module_chain(px_module *self, px_module_step step, void *value);
PX_API bool px_module_training(const px_module *self);
PX_CALL px_module_train(px_module *self, bool training);             // self and descendants
PX_API void px_module_set_training(px_module *self, bool training);  // self only
PX_CALL px_module_requires_grad(px_module *self, bool requires_grad);
PX_CALL px_module_zero_grad(px_module *self);
// Moves parameters, buffers and gradients to a dtype and device; the tensor objects stay the same.
// The dtype must be floating-point (PX_TYPE); integer buffers keep theirs. PX_DTYPE_NONE and
// PX_DEVICE_NONE change nothing.
PX_CALL px_module_to(px_module *self, px_dtype dtype, px_device device, bool non_blocking);
// The same, and converts tensors of four and five dimensions to a memory format, as px_to_format
// does.
PX_CALL px_module_to_format(px_module *self, px_dtype dtype, px_device device, bool non_blocking,
                            px_memory_format format);
// Casts floating-point parameters, buffers and their gradients; complex tensors keep their dtype.
PX_CALL px_module_cast(px_module *self, px_dtype dtype);
// Returns the parameters and persistent buffers by name, as tensors without history.
PX_CALL px_module_state_dict(px_dict **out, px_module *self, const char *prefix);
// Copies the values of a state dict into the tensors of the same names. With `strict`, fails with
// PX_RUNTIME and PyTorch's text listing all missing and unexpected names. Different sizes are
// always an error. Nothing is changed on failure.
PX_CALL px_module_load_state_dict(px_module *self, px_dict *state, bool strict);
// Copies the structure of a module. `replace` returns a new tensor for each parameter and buffer,
// or NULL to share the entry. PX_TYPE for kinds of another language.
typedef px_status (*px_module_replace)(px_tensor **out, px_tensor *tensor, px_entry_sort sort,
                                       void *context);
PX_CALL px_module_copy(px_module **out, px_module *self, px_module_replace replace, void *context);
// Returns PyTorch's printed form of the module, to be freed with px_free.
PX_CALL px_module_text(char **out, px_module *self);
// Writes the text between the parentheses, by the kind's template.
PX_API void px_module_extra_repr(const px_module *self, char *text, size_t capacity);

// A batch normalisation in evaluation mode; weight and bias may be NULL.
typedef struct px_channel_norm {
  const px_tensor *mean, *var, *weight, *bias;
  double eps;
} px_channel_norm;
// Returns the weight and bias, without history, of a convolution or linear layer fused with a
// following normalisation. `of_weight` and `of_bias` (or NULL) are the layer's. Channels are
// dimension 0 of the weight, for a transposed convolution dimension 1. PX_RUNTIME if the sizes do
// not match.
PX_CALL px_fuse_norm(px_tensor **weight, px_tensor **bias, const px_tensor *of_weight,
                     const px_tensor *of_bias, const px_channel_norm *norm, bool transposed);

// ---- attention

// torch.nn.functional.multi_head_attention_forward (Vaswani et al. 2017). Tensors are (length,
// batch, size) or (length, size); optional ones may be NULL.
typedef struct px_attention {
  px_tensor *query, *key, *value;
  int64_t embed_dim, num_heads;              // size of query, divisible by num_heads
  px_tensor *in_proj_weight, *in_proj_bias;  // (3 embed_dim, embed_dim), (3 embed_dim)
  px_tensor *bias_k, *bias_v;                // an additional key and value, (1, 1, embed_dim)
  bool add_zero_attn;                        // append a key and value of zeros
  double dropout_p;                          // of attention weights, in training
  px_tensor *out_proj_weight, *out_proj_bias;
  bool training;
  // Masks: bool, true for masked positions, or numbers added to the scores. key_padding_mask is
  // (batch, keys); attn_mask is (queries, keys) or (batch num_heads, queries, keys).
  px_tensor *key_padding_mask, *attn_mask;
  bool need_weights, average_attn_weights;  // return weights; average them over heads
  bool use_separate_proj_weight;            // use the matrices below instead of in_proj_weight
  px_tensor *q_proj_weight, *k_proj_weight, *v_proj_weight;
  px_tensor *static_k, *static_v;  // (batch num_heads, keys, embed_dim / num_heads), projected
  bool is_causal;                  // hint: attn_mask is causal
} px_attention;
// *weights is NULL without need_weights. PX_ASSERTION and PX_RUNTIME, with PyTorch's texts, for
// sizes that do not match.
PX_CALL px_multi_head_attention(px_tensor **output, px_tensor **weights, const px_attention *args);

// A pruning step: removes `amount` elements, or channels along `dim`, or with `share` that fraction
// of them. Chosen at random, or by lowest score: an element's magnitude, a channel's p-norm.
typedef struct px_prune {
  double amount;
  bool share, channels, random;
  int dim;
  double p;
} px_prune;
// Returns a mask (1: keep) with additional zeros; `mask` is unchanged. PX_VALUE, PX_INDEX for an
// amount or dim out of range.
PX_CALL px_prune_mask(px_tensor **out, const px_tensor *scores, const px_tensor *mask,
                      const px_prune *how);

// ---- initialisation (torch.nn.init), in place, not recorded

PX_CALL px_init_fans(int64_t *fan_in, int64_t *fan_out, const px_tensor *weight);
// Returns the recommended gain of "linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu" (with
// slope `parameter`) or "selu". PX_VALUE for others.
PX_CALL px_init_gain(double *out, const char *nonlinearity, double parameter);
PX_CALL px_init_uniform(px_tensor *weight, double from, double to, px_generator *generator);
PX_CALL px_init_normal(px_tensor *weight, double mean, double std, px_generator *generator);
PX_CALL px_init_constant(px_tensor *weight, double value);
// Kaiming: He et al. 2015. Xavier: Glorot and Bengio 2010. With `fan_out` the scale uses the number
// of outputs instead of inputs. nonlinearity NULL means "leaky_relu", with slope `a`.
PX_CALL px_init_kaiming_uniform(px_tensor *weight, double a, bool fan_out, const char *nonlinearity,
                                px_generator *generator);
PX_CALL px_init_kaiming_normal(px_tensor *weight, double a, bool fan_out, const char *nonlinearity,
                               px_generator *generator);
PX_CALL px_init_xavier_uniform(px_tensor *weight, double gain, px_generator *generator);
PX_CALL px_init_xavier_normal(px_tensor *weight, double gain, px_generator *generator);
// Fills with normal numbers truncated to [a, b].
PX_CALL px_init_truncated_normal(px_tensor *weight, double mean, double std, double a, double b,
                                 px_generator *generator);
// px_init_eye: the identity matrix. px_init_dirac: the identity kernel of a convolution, preserving
// channels. px_init_sparse: a fraction `sparsity` of zeros in each column, the rest normal.
// px_init_orthogonal: orthogonal rows or columns of length `gain` (Saxe et al. 2013). PX_VALUE for
// other shapes.
PX_CALL px_init_eye(px_tensor *weight);
PX_CALL px_init_dirac(px_tensor *weight, int64_t groups);
PX_CALL px_init_sparse(px_tensor *weight, double sparsity, double std, px_generator *generator);
PX_CALL px_init_orthogonal(px_tensor *weight, double gain, px_generator *generator);

#ifdef __cplusplus
}
#endif
