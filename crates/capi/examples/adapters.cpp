/* Tunes an exported program with adapters (LoRA) from C++, saves them for PEFT, and merges them into the weights:
 *
 *     adapters MODEL.pt2 FOLDER
 *
 * The program takes one f32 tensor. Exits with 1 and a message if anything is not as it should be. */
#include <cmath>
#include <cstdio>
#include <firebrand.hpp>

namespace fb = firebrand;

static void expect(bool truth, const char *what) {
    if (!truth) throw std::runtime_error(std::string("expected: ") + what);
}

static void run(const std::string &model, const std::string &folder) {
    fb::check_version();
    fb::manual_seed(0);
    try {
        fb::Program::load("no such file.pt2");
        expect(false, "a missing file is refused");
    } catch (const fb::Error &error) {
        expect(error.kind() == FB_ERROR_FILE, "errors have a kind");
    }

    fb::Program base = fb::Program::load(model);
    std::vector<std::int64_t> sizes = base.input_sizes(0);
    std::size_t count = 1;
    for (std::int64_t &size : sizes) {
        if (size < 0) size = 4;
        count *= static_cast<std::size_t>(size);
    }
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; i++) data[i] = std::sin(static_cast<float>(i));
    const fb::Tensor input(sizes, data);
    auto output = [&](const fb::Program &program) {
        fb::NoGrad off;
        return std::move(program(input).at(0));
    };
    const fb::Tensor before = output(base);
    const fb::Tensor target(before.sizes(), std::vector<float>(before.numel()));

    fb::LoraOptions options;
    options.rank = 4;
    fb::Program adapted = base.lora(options);
    expect(adapted.parameter_names().size() > base.parameter_names().size(), "adapters are parameters");
    fb::Optimizer optimizer(adapted, FB_ADAMW, 1e-2);
    fb_fit_options fit = fb::fit_options();
    fit.epochs = 20;
    fit.batch_size = static_cast<std::size_t>(sizes.at(0));
    std::vector<double> losses;
    bool whole = adapted.fit(optimizer, FB_MSE, {&input}, target, fit, [&](const fb_progress &now) {
        losses.push_back(now.loss);
        return true;
    });
    std::printf("loss %g, after %zu steps %g\n", losses.front(), losses.size(), losses.back());
    expect(whole && losses.back() < losses.front(), "the loss falls");
    expect(!adapted.fit(optimizer, FB_MSE, {&input}, target, fit, [](const fb_progress &) { return false; }), "it can stop");
    try {
        adapted.fit(optimizer, FB_MSE, {&input}, target, fit,
                    [](const fb_progress &) -> bool { throw std::length_error("mine"); });
        expect(false, "what a callback throws arrives");
    } catch (const std::length_error &) {
    }

    adapted.eval();
    const std::vector<float> tuned = output(adapted).to_vector<float>();
    adapted.save_adapter(folder);
    fb::Program again = base.load_adapter(folder), merged = adapted.merge_lora();
    again.eval();
    merged.eval();
    fb::Program copy = fb::Program::load_bytes(merged.save_bytes());
    copy.eval();
    expect(output(again).to_vector<float>() == tuned, "saved adapters give the same results");
    const std::vector<float> folded = output(copy).to_vector<float>();
    for (std::size_t i = 0; i < tuned.size(); i++)
        expect(std::fabs(folded[i] - tuned[i]) <= 1e-5f * (1 + std::fabs(tuned[i])), "merged weights give the same results");
    expect(output(base).to_vector<float>() == before.to_vector<float>(), "the base program stayed as it was");
}

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: adapters MODEL.pt2 FOLDER\n");
        return 2;
    }
    try {
        run(argv[1], argv[2]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
