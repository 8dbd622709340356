/* firebrand: load, run, differentiate, train and save programs that torch.export wrote (.pt2).
 *
 * Objects are opaque. The caller owns what a function with "new" or "load" in its name, fb_program_run,
 * fb_program_parameter, fb_program_gradient or fb_loss returns, and frees it with the free function of its type. Freeing
 * null is fine. Every other pointer that a function returns is valid as long as the object it was obtained from.
 *
 * A function that returns an object returns null on failure, one that returns a status returns 0 on success and -1 on
 * failure; fb_last_error() then says why. This covers invalid arguments (pointers that are null or misaligned, unknown
 * enum values, indices out of range), damaged files, and memory that cannot be allocated. No panic or exception crosses
 * into C; an internal error of the library is reported as a failure too. What the library cannot check is up to the
 * caller: pointers must be valid, and a loaded file must not be changed or truncated in place while its program lives
 * (replacing it by a rename is fine).
 *
 * Memory that a function only writes need not be initialized.
 *
 * Different objects may be used on different threads at once; one object by one thread at a time. These count as one
 * object: a program, its optimizers, the results of running it, the losses of those, and the tensors returned by
 * fb_program_parameter and fb_program_gradient, which share the program's memory. Tensors of fb_tensor_new are
 * separate objects until a program runs on them; fb_last_error is per thread. */
#ifndef FIREBRAND_H
#define FIREBRAND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fb_tensor fb_tensor;
typedef struct fb_program fb_program;
typedef struct fb_optimizer fb_optimizer;

/* Element types; bools take one byte, the two 16-bit floats are raw bits, complex numbers are two floats. */
typedef enum {
    FB_BOOL = 0, FB_U8 = 1, FB_I8 = 2, FB_I16 = 3, FB_I32 = 4, FB_I64 = 5,
    FB_F16 = 6, FB_BF16 = 7, FB_F32 = 8, FB_F64 = 9, FB_C64 = 10, FB_C128 = 11
} fb_dtype;

/* The message of the last error on this thread; "" if there was none. Valid until the next error. */
const char *fb_last_error(void);

/* ---- tensors: dense, row-major */

/* A tensor with a copy of these elements. `sizes` may be null if ndim is 0, `data` if there are no elements. */
fb_tensor *fb_tensor_new(int32_t dtype, const int64_t *sizes, size_t ndim, const void *data);
void fb_tensor_free(fb_tensor *tensor);
int32_t fb_tensor_dtype(const fb_tensor *tensor);
size_t fb_tensor_ndim(const fb_tensor *tensor);
int64_t fb_tensor_size(const fb_tensor *tensor, size_t dim);
size_t fb_tensor_numel(const fb_tensor *tensor);
/* Copies all elements to `out`; `count` must be fb_tensor_numel. */
int32_t fb_tensor_copy(const fb_tensor *tensor, void *out, size_t count);

/* ---- programs: each loaded program has its own state */

fb_program *fb_program_load(const char *path);
void fb_program_free(fb_program *program);
/* Saves the program with its current state; PyTorch can load the file. */
int32_t fb_program_save(const fb_program *program, const char *path);

size_t fb_program_input_count(const fb_program *program);
const char *fb_program_input_name(const fb_program *program, size_t index);
int32_t fb_program_input_dtype(const fb_program *program, size_t index);
/* Number of dimensions; `sizes`, unless null, receives up to `capacity` of them, -1 for a dynamic one. */
int32_t fb_program_input_sizes(const fb_program *program, size_t index, int64_t *sizes, size_t capacity);

/* 1: training mode; 0: evaluation mode. Until called, the program is in the mode it was exported in. */
int32_t fb_program_train(fb_program *program, int32_t on);
/* Runs on `count` tensors in the program's order. Its tensor results are new objects in `outputs`, which has room for
 * `capacity`; `outputs_count`, unless null, receives their number, even if they did not fit (then none is returned). */
int32_t fb_program_run(const fb_program *program, const fb_tensor *const *inputs, size_t count,
                       fb_tensor **outputs, size_t capacity, size_t *outputs_count);

/* ---- gradients and training */

/* Mean squared error; cross entropy of logits (last dimension: classes) with class indices. */
typedef enum { FB_MSE = 0, FB_CROSS_ENTROPY = 1 } fb_loss_kind;
typedef enum { FB_SGD = 0, FB_ADAM = 1, FB_ADAMW = 2 } fb_optimizer_kind;

fb_tensor *fb_loss(int32_t kind, const fb_tensor *output, const fb_tensor *target);
/* Accumulates the gradients of a loss of one element into those of the parameters it was computed from. */
int32_t fb_backward(const fb_tensor *loss);

size_t fb_program_parameter_count(const fb_program *program);
const char *fb_program_parameter_name(const fb_program *program, size_t index);
/* A parameter; the tensor shares its memory. */
fb_tensor *fb_program_parameter(const fb_program *program, const char *name);
fb_tensor *fb_program_gradient(const fb_program *program, const char *name);

/* An optimizer over the parameters that require grad; it may outlive the program. */
fb_optimizer *fb_optimizer_new(const fb_program *program, int32_t kind, double lr);
void fb_optimizer_free(fb_optimizer *optimizer);
int32_t fb_optimizer_step(fb_optimizer *optimizer);
int32_t fb_optimizer_zero_grad(fb_optimizer *optimizer);

#ifdef __cplusplus
}
#endif

#endif
