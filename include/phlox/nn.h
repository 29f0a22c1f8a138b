// SPDX-License-Identifier: Apache-2.0
// Modules: named parameters, buffers and child modules, and a forward function.
//
// Each module has a kind: a constant row with its arguments (from which its constructor, attributes
// and printed form follow), an init function and a forward function. The library's kinds are
// generated from layers/*.layer; phlox/layers.h has their constructors. A subclass in another
// language is a kind of its own. A parameter is a leaf tensor with px_tensor_is_parameter. One
// thread at a time may use a module.
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

// Gives one result for `count` inputs.
// Where a kind has several results, out[i] is the i-th; all are NULL before the call.
typedef px_status (*px_module_function)(px_tensor **out, px_module *self, px_tensor *const *inputs,
                                        int count);
// Of a module that takes a size from its first input: the attribute, 0 until then, what the module
// is from then on, and the dimension of the input; which has `least` to `most` dimensions, or any
// number if they are 0.
typedef struct px_module_lazy {
  const char *size, *becomes;
  int dim, least, most;
} px_module_lazy;

// An input or a result: one tensor, or several one after another, which are a tuple in Python. An
// input that is optional may be NULL, or be left out with all that follow.
typedef struct px_module_port {
  const char *name;  // "hx"
  int tensors;
  bool optional;
  bool numbers;  // a list of whole numbers may stand for it in an embedding language
} px_module_port;
// What can be called of a module by name, with more than tensors: `forward`, and the parts of it
// that a subclass in another language may replace. `args` are values of all parameters; out[i] is
// the i-th result, and NULL before the call.
typedef struct px_module_method {
  const char *name;       // "forward"
  const char *signature;  // "(src: Tensor, src_mask: Tensor | None = None) -> Tensor"
  const px_param *params;
  int param_count;
  px_status (*run)(px_tensor **out, px_module *self, const px_value *args);
} px_module_method;

// What a kind of module is.
typedef struct px_module_kind {
  const char *name;  // "Linear"
  // The text for Python's help: signature, "--", a sentence, arguments, shapes, errors, examples;
  // or NULL.
  const char *doc;
  // Constructor arguments, which become the attributes; behind those of a lazy kind, its size.
  const px_param *params;
  int param_count;
  // Makes parameters and buffers from the attributes; NULL if there are none.
  px_status (*init)(px_module *self);
  px_module_function forward;  // NULL: the module cannot be called
  // For a second result beside forward's (the indices of MaxPool2d(return_indices=True)), which is
  // NULL where the arguments want none; and for a size of the result that comes with the inputs.
  px_status (*pair)(px_tensor **out, px_tensor **second, px_module *self, px_tensor *const *inputs,
                    int count);
  px_status (*sized)(px_tensor **out, px_module *self, px_tensor *const *inputs, px_value sizes);
  // The text between the parentheses of the printed form: a template, or a function; NULL: none. In
  // a template, {name} is the value of an attribute (of a tensor's name: whether there is one). A
  // part in [...] is left out if all names in it have their defaults; of [a|b] the first part that
  // is not left out is printed.
  const char *repr;
  const char *formula;  // the forward in words, for bindings that let programs replace functions
  void (*repr_fn)(const px_module *self, char *text, size_t room);
  const px_module_port *inputs;  // ("input", "target"), or NULL: tensors
  int input_count;
  const px_module_port *results;  // NULL: one tensor
  int result_count;
  const char *const *tensors;  // names of the parameters and buffers that forward reads
  int tensor_count;
  bool starts;                 // has tensors of its own making, which px_module_reset starts anew
  const px_module_lazy *lazy;  // NULL: all sizes are arguments
  // The same where attributes tell how many there are: writes the i-th name; false past the end.
  bool (*tensor_name)(const px_module *self, int i, char *name, size_t room);
  const char *base;          // the kind whose class is the base of this one's, or NULL
  const char *const *fixed;  // attributes that are no arguments, up to a NULL; or NULL: none
  // The first is forward, where that takes more than tensors; `inputs` are the tensors among its
  // parameters.
  const px_module_method *methods;
  int method_count;
  const char *named;     // what a tuple of the results is called in Python, or NULL
  const char *callable;  // the argument that may be a function in another language, or NULL
  // The arguments that another language takes only of their own types, or NULL, and the text for
  // others: %1$s is the argument, %2$s its type, %3$s that which was given.
  const char *typed, *typed_text;
  // For kinds of another language.
  void (*release)(void *context);
} px_module_kind;

// In the `output_size` of adaptive pooling layers: the input's own size. Python's None.
#define PX_OWN_SIZE INT64_MIN
// "None" for an optional argument; PX_NONE() would mean its default.
static inline px_value PX_GIVEN_NONE(void) {
  px_value none = PX_NONE();
  none.category = 'n';
  return none;
}

// Constructors with named arguments (phlox/layers.h) write them over a struct of defaults and pass
// it to a function px_NAME_make. PX_SIZES(3, 5) is a list in the place of a number; PX_NO_INT and
// PX_NO_FLOAT are None. Example: px_conv2d_new(&m, 1, 32, 3, .padding = 1).
// clang-format off
#define PX_SIZES(...) {__VA_ARGS__}
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

// The kinds of the library: the i-th in the order of their names, or one by name; NULL if there is
// none.
PX_API const px_module_kind *px_module_kind_at(int i);
PX_API const px_module_kind *px_module_kind_find(const char *name);

// Makes a module. `args` are kind->param_count values: PX_ARG_NONE means the default,
// PX_GIVEN_NONE() means None. `context` is for the kind's own use. PX_VALUE and PX_TYPE, with
// PyTorch's texts, for bad arguments.
PX_CALL px_module_new(px_module **out, const px_module_kind *kind, const px_value *args,
                      void *context);
PX_API const px_module_kind *px_module_kind_of(const px_module *self);
// Gives a kind to an empty module that has none, for bindings that restore a module from its parts,
// or to a lazy one.
PX_CALL px_module_adopt_kind(px_module *self, const px_module_kind *kind);
PX_API void *px_module_context(const px_module *self);
PX_API void *px_module_user(const px_module *self);  // the embedding language's object, borrowed
PX_API void px_module_set_user(px_module *self, void *user);
// Lets calls of this module, after its hooks, go to another language's function, or with NULL to
// the kind's again. The function takes any number of inputs, at most 4.
PX_API void px_module_set_forward(px_module *self, px_module_function forward);
// The same for px_module_invoke: the function finds the method, or the function or tensor, of that
// name. NULL: the kind's methods alone.
struct px_named_value;
typedef px_status (*px_module_invoker)(px_tensor **results, int result_count, px_module *self,
                                       const char *method, const struct px_named_value *args,
                                       int count);
PX_API void px_module_set_invoke(px_module *self, px_module_invoker invoke);

// Makes a Sequential of `count` modules, named 0, 1, ...; it keeps references to them.
PX_CALL px_sequential_new(px_module **out, px_module *const *children, int count);
// Makes a stack of `count` copies of a layer, each with parameters of its own, which begin with the
// same values; `norm`, which it keeps a reference to, comes last and may be NULL. A layer is called
// as TransformerEncoderLayer is, or TransformerDecoderLayer.
//   px_transformer_encoder_layer_new(&layer, 512, 8, .batch_first = true);
//   px_transformer_encoder_new(&encoder, layer, 6, NULL);
PX_CALL px_transformer_encoder_new(px_module **out, px_module *layer, int64_t count,
                                   px_module *norm);
PX_CALL px_transformer_decoder_new(px_module **out, px_module *layer, int64_t count,
                                   px_module *norm);

// ---- contents

// Sets an attribute: a number, a list of at most 8 integers, or a text. Reads one; of kind
// PX_ARG_NONE if there is none.
PX_CALL px_module_set_attribute(px_module *self, const char *name, px_value value);
PX_API px_value px_module_attribute(const px_module *self, const char *name);
// Registers an entry, or replaces the entry of that name; the module keeps a reference. The name of
// a NULL parameter or buffer keeps its place in the order. PX_KEY "attribute 'weight' already
// exists" if an entry of another sort has the name.
PX_CALL px_module_register_parameter(px_module *self, const char *name, px_tensor *parameter);
PX_CALL px_module_register_buffer(px_module *self, const char *name, px_tensor *buffer,
                                  bool persistent);
PX_CALL px_module_register_module(px_module *self, const char *name, px_module *child);
// Removes the entry of a name, of any sort. PX_ATTRIBUTE if there is none.
PX_CALL px_module_remove(px_module *self, const char *name);

typedef enum px_entry_sort {
  PX_ENTRY_PARAMETER = 1,
  PX_ENTRY_BUFFER = 2,
  PX_ENTRY_MODULE = 4
} px_entry_sort;
typedef struct px_module_entry {
  const char *name;  // borrowed
  px_entry_sort sort;
  bool persistent;    // of buffers
  px_tensor *tensor;  // borrowed; may be NULL
  px_module *module;  // borrowed; may be NULL
} px_module_entry;
// Gives the i-th entry of the given sorts, in the order of registration, or the entry of a name;
// false if there is none. Entries of children are not among them.
PX_API bool px_module_entry_at(const px_module *self, int sorts, int i, px_module_entry *out);
PX_API bool px_module_entry_find(const px_module *self, const char *name, px_module_entry *out);
// Puts an entry in the place of the one of its name, of whatever sort, without what the register
// functions check; the module keeps a reference.
PX_CALL px_module_put(px_module *self, const px_module_entry *entry);
// Calls `visit` for the entries of self and, with `recurse`, of its children, in depth-first order.
// A tensor or module that occurs several times is visited once, unless `duplicates`. `name` is the
// full name, with dots, valid during the call. With PX_ENTRY_MODULE, self comes first, as `prefix`.
typedef px_status (*px_module_visit)(const char *name, const px_module_entry *entry,
                                     px_module *owner, void *context);
PX_CALL px_module_each(px_module *self, int sorts, const char *prefix, bool recurse,
                       bool duplicates, px_module_visit visit, void *context);
// What the calling thread does from here on counts as the module's (phlox/flops.h), until
// px_flops_leave: for what runs modules by other ways than px_module_forward, which does so itself.
// class_name: what a module is called that is called by itself; NULL: its kind.
PX_CALL px_module_count_flops(px_module *self, const char *class_name);
// Gives all parameters of self and its children, each once.
PX_CALL px_module_parameters(px_list **out, px_module *self);

// ---- use

// Calls the module: the hooks before, forward, the hooks after. Of several results the first is
// given.
PX_CALL px_module_forward(px_tensor **out, px_module *self, px_tensor *const *inputs, int count);
// The same, for one input.
PX_CALL px_module_call(px_tensor **out, px_module *self, px_tensor *input);
// The same, for the first `result_count` results, each a new reference:
//   px_tensor *inputs[] = {x, h, c}, *results[3];  // or x alone: states of zeros
//   PX_TRY(px_module_forward_all(results, 3, lstm, inputs, 3));  // output, h and c at the end
// A packed sequence is its data, with its batch_sizes as the last input, behind the states.
PX_CALL px_module_forward_all(px_tensor **results, int result_count, px_module *self,
                              px_tensor *const *inputs, int count);
// Calls a method of a module by name, with arguments by position (no name) and by name; what is not
// given has its default. `forward` is called with its hooks. A kind that has no methods has forward
// alone, with tensors. PX_TYPE for arguments that do not fit, PX_ATTRIBUTE for no such method.
//   px_tensor *results[2];  // the output, and the weights, which are NULL here
//   px_module_invoke(results, 2, attention, "forward",
//                    (px_named_value[]){{NULL, PX_T(q)}, {NULL, PX_T(k)}, {NULL, PX_T(v)},
//                                       {"need_weights", PX_B(false)}}, 4);
typedef struct px_named_value {
  const char *name;
  px_value value;
} px_named_value;
PX_CALL px_module_invoke(px_tensor **results, int result_count, px_module *self, const char *method,
                         const px_named_value *args, int count);
// Writes the name of the i-th parameter or buffer that the kind's forward reads; false past the
// end.
PX_API bool px_module_tensor_name(const px_module *self, int i, char *name, size_t room);
// How many tensors `count` inputs or results are.
PX_API int px_module_port_tensors(const px_module_port *ports, int count);
// A hook before forward (`result` is NULL) may replace the first input, a hook after it the first
// result: *replacement is then a new reference. Hooks run in the order in which they were added. A
// hook that is added during a call runs from the next call on.
typedef px_status (*px_module_hook)(px_tensor **replacement, px_module *self,
                                    px_tensor *const *inputs, int count, px_tensor *result,
                                    void *context);
// release(context) is called when the hook is removed or the module ends; `release` may be NULL.
PX_CALL px_module_add_hook(int64_t *id, px_module *self, bool before, px_module_hook hook,
                           void *context, void (*release)(void *context));
PX_API void px_module_remove_hook(px_module *self, int64_t id);
// Gives the tensors of a lazy module their sizes, by an input, and their first values, if they wait
// for them; the first call does so, and the module is then of the kind that it becomes.
PX_CALL px_module_infer(px_module *self, px_tensor *input);
// Gives the tensors of a layer the values again that they start with; random ones are drawn anew.
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
// Calls a module for another language, whose arguments and results need not be tensors: the hooks
// before, forward, the hooks after, each through a function of `way`, which gets `call`.
typedef struct px_module_way {
  px_status (*hook)(px_module *self, const px_hook_entry *hook, void *call);
  px_status (*forward)(px_module *self, void *call);
} px_module_way;
PX_CALL px_module_run(px_module *self, const px_module_way *way, void *call);
// The same for the forward of a Sequential: calls step(child, value) for each child in turn, which
// replaces `value` by its result. A child may be NULL.
typedef px_status (*px_module_step)(px_module *child, void *value);
PX_CALL px_module_chain(px_module *self, px_module_step step, void *value);
PX_API bool px_module_training(const px_module *self);
PX_CALL px_module_train(px_module *self, bool training);             // self and all below
PX_API void px_module_set_training(px_module *self, bool training);  // self alone
PX_CALL px_module_requires_grad(px_module *self, bool requires_grad);
PX_CALL px_module_zero_grad(px_module *self);
// Moves parameters, buffers and gradients to a dtype and device; the tensors stay the same objects.
// The dtype must be floating-point (PX_TYPE); it does not change integer buffers. PX_DTYPE_NONE and
// PX_DEVICE_NONE change nothing.
PX_CALL px_module_to(px_module *self, px_dtype dtype, px_device device, bool non_blocking);
// The same, and gives those of four and five dimensions a memory format, as px_to_format does.
PX_CALL px_module_to_format(px_module *self, px_dtype dtype, px_device device, bool non_blocking,
                            px_memory_format format);
// Gives the names, and the tensors without history, of the parameters and persistent buffers.
PX_CALL px_module_state_dict(px_dict **out, px_module *self, const char *prefix);
// Copies the values of a state dict to the tensors of the same names. With `strict`, PX_RUNTIME,
// with PyTorch's text, lists all names that are missing or unexpected; sizes that differ are always
// an error. Nothing is changed then.
PX_CALL px_module_load_state_dict(px_module *self, px_dict *state, bool strict);
// Copies the structure of a module. Each parameter and buffer is replaced by what `replace` gives,
// a new reference; if it gives NULL the entry is shared. PX_TYPE for kinds of another language.
typedef px_status (*px_module_replace)(px_tensor **out, px_tensor *tensor, px_entry_sort sort,
                                       void *context);
PX_CALL px_module_copy(px_module **out, px_module *self, px_module_replace replace, void *context);
// Gives PyTorch's printed form of the module, which the caller frees with px_free.
PX_CALL px_module_text(char **out, px_module *self);
// Writes the part between the parentheses, by the kind's template.
PX_API void px_module_extra_repr(const px_module *self, char *text, size_t room);

// What a batch normalisation does in evaluation mode; weight and bias may be NULL.
typedef struct px_channel_norm {
  const px_tensor *mean, *var, *weight, *bias;
  double eps;
} px_channel_norm;
// Gives the weight and bias, without history, of a convolution or linear layer that normalises as
// well: of one with `of_weight` and `of_bias` (or NULL). Channels are dimension 0 of the weight, of
// a transposed convolution's dimension 1. PX_RUNTIME if the sizes do not fit.
PX_CALL px_fuse_norm(px_tensor **weight, px_tensor **bias, const px_tensor *of_weight,
                     const px_tensor *of_bias, const px_channel_norm *norm, bool transposed);

// ---- attention

// torch.nn.functional.multi_head_attention_forward (Vaswani et al. 2017). Tensors are (length,
// batch, size), or (length, size); those that may be absent are NULL.
typedef struct px_attention {
  px_tensor *query, *key, *value;
  int64_t embed_dim, num_heads;              // the size of query, which num_heads divides
  px_tensor *in_proj_weight, *in_proj_bias;  // (3 embed_dim, embed_dim), (3 embed_dim)
  px_tensor *bias_k, *bias_v;                // one more key and value, (1, 1, embed_dim)
  bool add_zero_attn;                        // one more key and value of zeros
  double dropout_p;                          // of weights, while `training`
  px_tensor *out_proj_weight, *out_proj_bias;
  bool training;
  // Bool, true for what is hidden, or numbers that are added to the scores: of keys, (batch, keys);
  // and of pairs, (queries, keys) or (batch num_heads, queries, keys).
  px_tensor *key_padding_mask, *attn_mask;
  bool need_weights, average_attn_weights;  // whether the weights are given, as means over heads
  bool use_separate_proj_weight;            // the matrices below, in the place of in_proj_weight
  px_tensor *q_proj_weight, *k_proj_weight, *v_proj_weight;
  px_tensor *static_k, *static_v;  // (batch num_heads, keys, embed_dim / num_heads), projected
  bool is_causal;                  // a hint that attn_mask hides what comes later
} px_attention;
// *weights is NULL where they are not needed. PX_ASSERTION and PX_RUNTIME for sizes that do not
// fit, with PyTorch's texts.
PX_CALL px_multi_head_attention(px_tensor **output, px_tensor **weights, const px_attention *args);

// What a mask loses: `amount` elements or channels along `dim`, or that share of them; those at
// random, or else those whose score counts least: an element's magnitude, a channel's p-norm.
typedef struct px_prune {
  double amount;
  bool share, channels, random;
  int dim;
  double p;
} px_prune;
// Gives a mask (1 for what stays) that has lost more; the mask given stays as it is. PX_VALUE,
// PX_INDEX for an amount or a dim that does not fit the scores.
PX_CALL px_prune_mask(px_tensor **out, const px_tensor *scores, const px_tensor *mask,
                      const px_prune *how);

// ---- initialisation (torch.nn.init), in place, without recording

PX_CALL px_init_fans(int64_t *fan_in, int64_t *fan_out, const px_tensor *weight);
// Gives the recommended gain of "linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu" (whose
// slope is `parameter`) or "selu". PX_VALUE for others.
PX_CALL px_init_gain(double *out, const char *nonlinearity, double parameter);
PX_CALL px_init_uniform(px_tensor *weight, double from, double to, px_generator *generator);
PX_CALL px_init_normal(px_tensor *weight, double mean, double std, px_generator *generator);
PX_CALL px_init_constant(px_tensor *weight, double value);
// Kaiming: He et al. 2015; Xavier: Glorot and Bengio 2010. With `fan_out` the scale follows from
// the number of outputs instead of inputs; nonlinearity NULL means "leaky_relu", whose slope is
// `a`.
PX_CALL px_init_kaiming_uniform(px_tensor *weight, double a, bool fan_out, const char *nonlinearity,
                                px_generator *generator);
PX_CALL px_init_kaiming_normal(px_tensor *weight, double a, bool fan_out, const char *nonlinearity,
                               px_generator *generator);
PX_CALL px_init_xavier_uniform(px_tensor *weight, double gain, px_generator *generator);
PX_CALL px_init_xavier_normal(px_tensor *weight, double gain, px_generator *generator);
// Normal numbers between a and b.
PX_CALL px_init_truncated_normal(px_tensor *weight, double mean, double std, double a, double b,
                                 px_generator *generator);
// Ones on the diagonal of a matrix; in the middle of the kernels of a convolution, so that it keeps
// channels; few numbers in each column of a matrix, of which the part `sparsity` is 0; rows, or
// columns, of length `gain` at right angles (Saxe et al. 2013). PX_VALUE for other shapes.
PX_CALL px_init_eye(px_tensor *weight);
PX_CALL px_init_dirac(px_tensor *weight, int64_t groups);
PX_CALL px_init_sparse(px_tensor *weight, double sparsity, double std, px_generator *generator);
PX_CALL px_init_orthogonal(px_tensor *weight, double gain, px_generator *generator);

#ifdef __cplusplus
}
#endif
