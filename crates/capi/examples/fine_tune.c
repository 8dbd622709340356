/* Fine-tunes an exported program towards zero from C, saves it and loads it again:
 *
 *     fine_tune MODEL.pt2 OUT.pt2
 *
 * The program takes one f32 tensor. Exits with 1 and a message if anything is not as it should be. */
#include <firebrand.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DIMS 8
#define STEPS 20

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, fb_last_error());
    exit(1);
}

static void expect(int truth, const char *what) {
    if (!truth) {
        fprintf(stderr, "expected: %s\n", what);
        exit(1);
    }
}

/* An input of the program's sizes with numbers between -1 and 1; dimensions that may vary are 4. */
static fb_tensor *make_input(const fb_program *program) {
    int64_t sizes[MAX_DIMS];
    int32_t ndim = fb_program_input_sizes(program, 0, sizes, MAX_DIMS);
    if (ndim < 0 || ndim > MAX_DIMS) fail("input");
    expect(fb_program_input_dtype(program, 0) == FB_F32, "an f32 input");
    size_t count = 1;
    for (int32_t d = 0; d < ndim; d++) {
        if (sizes[d] < 0) sizes[d] = 4;
        count *= (size_t)sizes[d];
    }
    float *data = malloc(count * sizeof *data);
    if (!data) exit(1);
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 37 + 11) % 64) / 32.0f - 1.0f;
    fb_tensor *input = fb_tensor_new(FB_F32, sizes, (size_t)ndim, data);
    free(data);
    if (!input) fail("fb_tensor_new");
    return input;
}

/* Zeros of the shape of a result. */
static fb_tensor *zeros_like(const fb_tensor *t) {
    int64_t sizes[MAX_DIMS];
    size_t ndim = fb_tensor_ndim(t), count = fb_tensor_numel(t);
    for (size_t d = 0; d < ndim; d++) sizes[d] = fb_tensor_size(t, d);
    float *data = calloc(count, sizeof *data);
    if (!data) exit(1);
    fb_tensor *zeros = fb_tensor_new(FB_F32, sizes, ndim, data);
    free(data);
    if (!zeros) fail("fb_tensor_new");
    return zeros;
}

static fb_tensor *run(const fb_program *program, const fb_tensor *input) {
    fb_tensor *output;
    const fb_tensor *inputs[] = {input};
    if (fb_program_run(program, inputs, 1, &output, 1, NULL)) fail("fb_program_run");
    return output;
}

static fb_tensor *loss_of(const fb_program *program, const fb_tensor *input) {
    fb_tensor *output = run(program, input), *target = zeros_like(output);
    fb_tensor *loss = fb_loss(FB_MSE, output, target);
    if (!loss) fail("fb_loss");
    fb_tensor_free(output);
    fb_tensor_free(target);
    return loss;
}

static float number(const fb_tensor *t) {
    float value;
    if (fb_tensor_copy(t, &value, 1)) fail("fb_tensor_copy");
    return value;
}

/* Counts steps; the largest count stops. */
static int32_t progress(const fb_progress *now, void *user) {
    size_t *told = user;
    expect(now->step <= now->steps && now->epoch <= now->epochs && now->loss >= 0, "progress makes sense");
    return ++*told == SIZE_MAX;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: fine_tune MODEL.pt2 OUT.pt2\n");
        return 2;
    }
    /* Failures say why and crash nothing. */
    expect(fb_program_load("no such file.pt2") == NULL, "a missing file is refused");
    expect(fb_last_error()[0] != 0, "a refusal has a message");
    expect(fb_last_error_kind() == FB_ERROR_FILE, "a refusal has a kind");
    expect(fb_abi_version() == FB_ABI_VERSION, "header and library belong together");
    expect(fb_tensor_new(99, NULL, 0, NULL) == NULL, "an unknown dtype is refused");
    expect(fb_program_run(NULL, NULL, 0, NULL, 0, NULL) == -1, "null is refused");

    fb_program *program = fb_program_load(argv[1]);
    if (!program) fail(argv[1]);
    expect(fb_program_input_count(program) == 1, "one input");
    printf("input %s, output %s, %zu parameters\n", fb_program_input_name(program, 0), fb_program_output_name(program, 0),
           fb_program_parameter_count(program));
    fb_tensor *input = make_input(program);
    expect(fb_program_run(program, NULL, 0, NULL, 0, NULL) == -1, "a missing input is refused");

    fb_manual_seed(0);
    fb_optimizer_options settings;
    if (fb_optimizer_options_init(&settings, FB_ADAMW)) fail("fb_optimizer_options_init");
    settings.lr = 1e-2;
    settings.weight_decay = 0;
    fb_optimizer *optimizer = fb_optimizer_new_with(program, FB_ADAMW, &settings);
    if (!optimizer) fail("fb_optimizer_new_with");
    float first = 0, last = 0;
    for (int step = 0; step < STEPS; step++) {
        fb_tensor *loss = loss_of(program, input);
        last = number(loss);
        if (step == 0) first = last;
        if (fb_optimizer_zero_grad(optimizer) || fb_backward(loss)) fail("fb_backward");
        if (step == 0) {
            const char *name = fb_program_parameter_name(program, 0);
            fb_tensor *value = fb_program_parameter(program, name), *gradient = fb_program_gradient(program, name);
            if (!value || !gradient) fail(name);
            expect(fb_tensor_numel(value) == fb_tensor_numel(gradient), "a gradient has the shape of its parameter");
            fb_tensor_free(value);
            fb_tensor_free(gradient);
        }
        double norm;
        if (fb_clip_grad_norm(program, 1.0, &norm)) fail("fb_clip_grad_norm");
        expect(norm > 0, "there are gradients");
        if (fb_optimizer_step(optimizer)) fail("fb_optimizer_step");
        fb_tensor_free(loss);
    }
    printf("loss %g, after %d steps %g\n", first, STEPS, last);
    expect(last < first, "the loss falls");

    /* The same by the library's own loop, which reports its progress and can be stopped. */
    fb_fit_options options;
    if (fb_fit_options_init(&options)) fail("fb_fit_options_init");
    options.epochs = 5;
    options.batch_size = (size_t)fb_tensor_size(input, 0); /* the program was exported for this many */
    fb_tensor *output = run(program, input), *target = zeros_like(output);
    const fb_tensor *samples[] = {input};
    size_t told = 0;
    if (fb_fit(program, optimizer, FB_MSE, samples, 1, target, &options, progress, &told)) fail("fb_fit");
    expect(told > 0 && told % options.epochs == 0, "the callback is told of every step");
    told = SIZE_MAX - 2;
    expect(fb_fit(program, optimizer, FB_MSE, samples, 1, target, &options, progress, &told) == -1, "it can stop");
    expect(fb_last_error_kind() == FB_ERROR_STOPPED, "which is no other error");
    fb_tensor_free(output);
    fb_tensor_free(target);

    /* Without recording there is nothing to differentiate. */
    int32_t before = fb_no_grad(1);
    fb_tensor *plain = loss_of(program, input);
    expect(fb_backward(plain) == -1, "nothing was recorded");
    fb_no_grad(before);
    fb_tensor_free(plain);

    /* Through memory instead of a file. */
    uint8_t *bytes;
    size_t size;
    if (fb_program_save_bytes(program, &bytes, &size)) fail("fb_program_save_bytes");
    fb_program *copy = fb_program_load_bytes(bytes, size);
    if (!copy) fail("fb_program_load_bytes");
    bytes[size / 2] ^= 0xff;
    fb_program *damaged = fb_program_load_bytes(bytes, size / 2);
    expect(damaged == NULL && fb_last_error_kind() == FB_ERROR_FORMAT, "half a file is no program");
    fb_bytes_free(bytes, size);
    fb_program_free(copy);

    if (fb_program_save(program, argv[2])) fail("fb_program_save");
    fb_program *again = fb_program_load(argv[2]);
    if (!again) fail(argv[2]);
    fb_tensor *here = loss_of(program, input), *there = loss_of(again, input);
    expect(number(here) == number(there), "what was saved gives the same loss");
    fb_tensor_free(here);
    fb_tensor_free(there);
    fb_program_free(again);
    fb_optimizer_free(optimizer);
    fb_tensor_free(input);
    fb_program_free(program);
    return 0;
}
