/* firebrand: load, run, differentiate, train and save programs that torch.export wrote (.pt2).
 *
 * Objects are opaque. The comments below use these tags:
 *
 *   [new]     the result is the caller's, to be freed with the free function of its type; freeing null is fine
 *   [lent]    the result belongs to the object it was obtained from and is valid as long as that
 *   [any]     may be called from any thread at any time
 *   [object]  uses its objects: one thread at a time for each of them
 *
 * These count as one object: a program, its optimizers, the results of running it, the losses of those, and the tensors of
 * fb_program_parameter and fb_program_gradient, which share the program's memory. Tensors of fb_tensor_new are objects of
 * their own until a program runs on them. Different objects may be used on different threads at once. Arguments are only
 * read and never kept unless a comment says so.
 *
 * A function that returns an object returns null on failure, one that returns a status returns 0 on success and -1 on
 * failure; fb_last_error() then says why, and fb_last_error_kind() what kind of failure it was. This covers invalid
 * arguments (pointers that are null or misaligned, unknown enum values, indices out of range), damaged files, and memory
 * that cannot be allocated. No panic or exception crosses into C; an internal error of the library is reported as a failure
 * too. What the library cannot check is up to the caller: pointers must be valid, and a loaded file must not be changed or
 * truncated in place while its program lives (replacing it by a rename is fine).
 *
 * Memory that a function only writes need not be initialized. Structures of options begin with their size: always set them
 * with the function whose name ends in _options_init, then change what should differ. */
#ifndef FIREBRAND_H
#define FIREBRAND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The interface that this header describes; the shared library's name ends in the same number. */
#define FB_ABI_VERSION 1
/* The interface of the library; check that it equals FB_ABI_VERSION where the library is loaded at run time. [any] */
int32_t fb_abi_version(void);
/* The release, such as "0.1.0". Valid forever. [any] */
const char *fb_version(void);

typedef struct fb_tensor fb_tensor;
typedef struct fb_program fb_program;
typedef struct fb_optimizer fb_optimizer;

/* ---- errors */

typedef enum {
    FB_OK = 0,
    FB_ERROR_ARGUMENT = 1,    /* a pointer, index, name or value that the function does not accept */
    FB_ERROR_FILE = 2,        /* a file that cannot be read or written */
    FB_ERROR_FORMAT = 3,      /* content that is damaged, or not a program */
    FB_ERROR_UNSUPPORTED = 4, /* an op or feature that this build does not have */
    FB_ERROR_MEMORY = 5,      /* memory that cannot be allocated */
    FB_ERROR_RUN = 6,         /* an op that failed, such as on shapes that do not fit */
    FB_ERROR_STOPPED = 7,     /* the progress callback asked to stop */
    FB_ERROR_INTERNAL = 8     /* a fault of the library; free the objects of the call */
} fb_error_kind;

/* The message of the last error on this thread; "" if there was none. Valid until the next error on it. [any] */
const char *fb_last_error(void);
/* The kind of the last error on this thread, an fb_error_kind; FB_OK if there was none. [any] */
int32_t fb_last_error_kind(void);

/* ---- settings */

/* 1: ops on this thread record nothing for gradients from now on, which saves time and memory; 0: they do again. Returns
 * the previous value. [any] */
int32_t fb_no_grad(int32_t on);
/* Number of threads that ops use, in the whole process; one per core unless set. From 1 to 256. [any] */
size_t fb_num_threads(void);
/* Counts outside this range are clamped to it. [any] */
void fb_set_num_threads(size_t count);
/* Seeds the random numbers of the process: dropout, the order of samples, new adapters. Same seed, same results. [any] */
int32_t fb_manual_seed(uint64_t seed);

/* ---- tensors: dense, row-major */

/* Element types; bools take one byte, the two 16-bit floats are raw bits, complex numbers are two floats. */
typedef enum {
    FB_BOOL = 0, FB_U8 = 1, FB_I8 = 2, FB_I16 = 3, FB_I32 = 4, FB_I64 = 5,
    FB_F16 = 6, FB_BF16 = 7, FB_F32 = 8, FB_F64 = 9, FB_C64 = 10, FB_C128 = 11
} fb_dtype;

/* A tensor with a copy of these elements. `sizes` may be null if ndim is 0, `data` if there are no elements. [new, any] */
fb_tensor *fb_tensor_new(int32_t dtype, const int64_t *sizes, size_t ndim, const void *data);
/* [object] */
void fb_tensor_free(fb_tensor *tensor);
/* An fb_dtype; -1 on failure. [object] */
int32_t fb_tensor_dtype(const fb_tensor *tensor);
/* [object] */
size_t fb_tensor_ndim(const fb_tensor *tensor);
/* -1 if there is no such dimension. [object] */
int64_t fb_tensor_size(const fb_tensor *tensor, size_t dim);
/* [object] */
size_t fb_tensor_numel(const fb_tensor *tensor);
/* Copies all elements to `out`; `count` must be fb_tensor_numel. [object] */
int32_t fb_tensor_copy(const fb_tensor *tensor, void *out, size_t count);

/* ---- programs: each has its own state */

/* [new, any] */
fb_program *fb_program_load(const char *path);
/* From the content of a .pt2 file in memory, which is copied. [new, any] */
fb_program *fb_program_load_bytes(const void *bytes, size_t size);
/* Its optimizers and tensors may outlive it. [object] */
void fb_program_free(fb_program *program);
/* Saves the program with its current state, atomically; PyTorch can load the file. [object] */
int32_t fb_program_save(const fb_program *program, const char *path);
/* The same into memory: `*bytes` holds `*size` bytes, to be freed with fb_bytes_free. [new, object] */
int32_t fb_program_save_bytes(const fb_program *program, uint8_t **bytes, size_t *size);
/* [any] */
void fb_bytes_free(uint8_t *bytes, size_t size);

/* [object] */
size_t fb_program_input_count(const fb_program *program);
/* [lent, object] */
const char *fb_program_input_name(const fb_program *program, size_t index);
/* An fb_dtype; -1 if there is no such input or C has no such type. [object] */
int32_t fb_program_input_dtype(const fb_program *program, size_t index);
/* Number of dimensions; `sizes`, unless null, receives up to `capacity` of them, -1 for a dynamic one. [object] */
int32_t fb_program_input_sizes(const fb_program *program, size_t index, int64_t *sizes, size_t capacity);
/* Tensor outputs, in the order of fb_program_run; keys where the model returns a dictionary. [object] */
size_t fb_program_output_count(const fb_program *program);
/* [lent, object] */
const char *fb_program_output_name(const fb_program *program, size_t index);

/* 1: training mode; 0: evaluation mode. Until called, the program is in the mode it was exported in. [object] */
int32_t fb_program_train(fb_program *program, int32_t on);
/* Runs on `count` tensors in the program's order. Its tensor results are new objects in `outputs`, which has room for
 * `capacity`; `outputs_count`, unless null, receives their number, even if they did not fit (then none is returned).
 * Results keep what their gradients need, the inputs too, unless fb_no_grad is on. [new, object] */
int32_t fb_program_run(const fb_program *program, const fb_tensor *const *inputs, size_t count,
                       fb_tensor **outputs, size_t capacity, size_t *outputs_count);

/* ---- gradients and training */

/* Mean squared error; cross entropy of logits (last dimension: classes) with class indices. */
typedef enum { FB_MSE = 0, FB_CROSS_ENTROPY = 1 } fb_loss_kind;
typedef enum { FB_SGD = 0, FB_ADAM = 1, FB_ADAMW = 2 } fb_optimizer_kind;

/* A tensor of one element. [new, object] */
fb_tensor *fb_loss(int32_t kind, const fb_tensor *output, const fb_tensor *target);
/* Accumulates the gradients of a loss of one element into those of the parameters it was computed from. [object] */
int32_t fb_backward(const fb_tensor *loss);
/* Scales the gradients down so that their norm is at most `max_norm`; `norm`, unless null, receives the norm before scaling. [object] */
int32_t fb_clip_grad_norm(const fb_program *program, double max_norm, double *norm);

/* [object] */
size_t fb_program_parameter_count(const fb_program *program);
/* [lent, object] */
const char *fb_program_parameter_name(const fb_program *program, size_t index);
/* A parameter; the tensor shares its memory. [new, object] */
fb_tensor *fb_program_parameter(const fb_program *program, const char *name);
/* Null if it has no gradient. [new, object] */
fb_tensor *fb_program_gradient(const fb_program *program, const char *name);

/* Settings of an optimizer under PyTorch's names; each kind reads those that it has there. */
typedef struct {
    size_t size;
    double lr, weight_decay;
    double momentum, dampening;  /* FB_SGD */
    double beta1, beta2, eps;    /* FB_ADAM, FB_ADAMW */
    int32_t nesterov;            /* FB_SGD */
    int32_t amsgrad;             /* FB_ADAM, FB_ADAMW */
    int32_t maximize;
} fb_optimizer_options;

/* PyTorch's defaults. [any] */
int32_t fb_optimizer_options_init(fb_optimizer_options *options, int32_t kind);
/* An optimizer over the parameters that require grad; it may outlive the program. [new, object] */
fb_optimizer *fb_optimizer_new(const fb_program *program, int32_t kind, double lr);
/* [new, object] */
fb_optimizer *fb_optimizer_new_with(const fb_program *program, int32_t kind, const fb_optimizer_options *options);
/* [object] */
void fb_optimizer_free(fb_optimizer *optimizer);
/* [object] */
int32_t fb_optimizer_step(fb_optimizer *optimizer);
/* [object] */
int32_t fb_optimizer_zero_grad(fb_optimizer *optimizer);
/* NaN on failure. [object] */
double fb_optimizer_lr(const fb_optimizer *optimizer);
/* Takes effect at the next step; for schedules. [object] */
int32_t fb_optimizer_set_lr(fb_optimizer *optimizer, double lr);

typedef struct {
    size_t size;
    size_t epochs, batch_size;
    int32_t shuffle;
    double max_grad_norm; /* 0: gradients are not clipped */
} fb_fit_options;

/* Progress after a step, for the callback; both counts begin at 1. */
typedef struct {
    size_t epoch, epochs, step, steps;
    double loss;
} fb_progress;

/* Returns 0 to continue, anything else to stop. It runs on the thread that called fb_fit, must not use the objects that fb_fit
 * was given (fb_optimizer_set_lr included), and must not leave by longjmp or an exception. `progress` is valid during the call. */
typedef int32_t (*fb_progress_callback)(const fb_progress *progress, void *user);

/* One pass over the samples in shuffled batches of 32. [any] */
int32_t fb_fit_options_init(fb_fit_options *options);
/* Trains on samples: row i of every input and of `target` is sample i. The loss is that of the first output. Puts the
 * program into training mode. `callback` may be null. If it stops the training, the steps taken stay, and the result is -1
 * with FB_ERROR_STOPPED. [object] */
int32_t fb_fit(fb_program *program, fb_optimizer *optimizer, int32_t loss, const fb_tensor *const *inputs, size_t count,
               const fb_tensor *target, const fb_fit_options *options, fb_progress_callback callback, void *user);

/* ---- adapters (LoRA), in the files of the Python library PEFT */

typedef struct {
    size_t size;
    size_t rank;
    double alpha, dropout;
    const char *const *targets; /* layers by the end of their names, such as "q_proj"; none: every linear layer */
    size_t targets_count;
} fb_lora_options;

/* PEFT's defaults. [any] */
int32_t fb_lora_options_init(fb_lora_options *options);
/* A program like this one with new adapters, everything else frozen; make its optimizer afterwards. [new, object] */
fb_program *fb_program_lora(const fb_program *program, const fb_lora_options *options);
/* The same with the adapters of a folder (adapter_config.json, adapter_model.safetensors). [new, object] */
fb_program *fb_program_load_adapter(const fb_program *program, const char *folder);
/* Writes the adapters to a folder that exists; PEFT can load them. [object] */
int32_t fb_program_save_adapter(const fb_program *program, const char *folder);
/* A program like this one with its adapters added to the weights. [new, object] */
fb_program *fb_program_merge_lora(const fb_program *program);

#ifdef __cplusplus
}
#endif

#endif
