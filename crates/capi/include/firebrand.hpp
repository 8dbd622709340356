/* firebrand for C++17: the functions of firebrand.h as classes that free what they own and throw where those fail.
 *
 * Objects can be moved, not copied. Which threads may use what is as in firebrand.h. Everything is inline: only the C
 * library is linked, so compilers and standard libraries may differ. */
#ifndef FIREBRAND_HPP
#define FIREBRAND_HPP

#include "firebrand.h"

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace firebrand {

/* A failed call: what() is fb_last_error(), kind() is fb_last_error_kind(). */
class Error : public std::runtime_error {
  public:
    Error() : std::runtime_error(fb_last_error()), kind_(static_cast<fb_error_kind>(fb_last_error_kind())) {}
    fb_error_kind kind() const noexcept { return kind_; }

  private:
    fb_error_kind kind_;
};

namespace detail {
inline void check(int32_t status) {
    if (status != 0) throw Error();
}
template <class T> T *check(T *object) {
    if (object == nullptr) throw Error();
    return object;
}
struct Free {
    void operator()(fb_tensor *t) const noexcept { fb_tensor_free(t); }
    void operator()(fb_program *p) const noexcept { fb_program_free(p); }
    void operator()(fb_optimizer *o) const noexcept { fb_optimizer_free(o); }
};
template <class T> using Owned = std::unique_ptr<T, Free>;

template <class T> struct Dtype;
template <> struct Dtype<std::uint8_t> { static constexpr fb_dtype value = FB_U8; };
template <> struct Dtype<std::int8_t> { static constexpr fb_dtype value = FB_I8; };
template <> struct Dtype<std::int16_t> { static constexpr fb_dtype value = FB_I16; };
template <> struct Dtype<std::int32_t> { static constexpr fb_dtype value = FB_I32; };
template <> struct Dtype<std::int64_t> { static constexpr fb_dtype value = FB_I64; };
template <> struct Dtype<float> { static constexpr fb_dtype value = FB_F32; };
template <> struct Dtype<double> { static constexpr fb_dtype value = FB_F64; };
} // namespace detail

/* Throws std::runtime_error if the loaded library is not the one this header describes. */
inline void check_version() {
    if (fb_abi_version() != FB_ABI_VERSION)
        throw std::runtime_error("firebrand.h describes interface " + std::to_string(FB_ABI_VERSION) +
                                 ", the library has " + std::to_string(fb_abi_version()));
}
inline void manual_seed(std::uint64_t seed) { detail::check(fb_manual_seed(seed)); }

/* While it lives, ops of this thread record nothing for gradients. */
class NoGrad {
  public:
    NoGrad() : before_(fb_no_grad(1)) {}
    ~NoGrad() { fb_no_grad(before_); }
    NoGrad(const NoGrad &) = delete;
    NoGrad &operator=(const NoGrad &) = delete;

  private:
    int32_t before_;
};

class Tensor {
  public:
    /* Takes over an object of the C interface. */
    explicit Tensor(fb_tensor *raw) : raw_(detail::check(raw)) {}
    /* A copy of these elements; throws std::invalid_argument if there are not as many as the sizes say. */
    template <class T> Tensor(const std::vector<std::int64_t> &sizes, const std::vector<T> &elements) {
        std::size_t count = 1;
        for (std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
        if (count != elements.size()) throw std::invalid_argument("as many elements as the sizes say are needed");
        raw_.reset(detail::check(fb_tensor_new(detail::Dtype<T>::value, sizes.data(), sizes.size(), elements.data())));
    }
    fb_dtype dtype() const { return static_cast<fb_dtype>(fb_tensor_dtype(raw_.get())); }
    std::size_t numel() const { return fb_tensor_numel(raw_.get()); }
    std::vector<std::int64_t> sizes() const {
        std::vector<std::int64_t> sizes(fb_tensor_ndim(raw_.get()));
        for (std::size_t d = 0; d < sizes.size(); d++) sizes[d] = fb_tensor_size(raw_.get(), d);
        return sizes;
    }
    /* The elements, row by row; T must be the type of the tensor. */
    template <class T> std::vector<T> to_vector() const {
        if (dtype() != detail::Dtype<T>::value) throw std::invalid_argument("the tensor has another element type");
        std::vector<T> out(numel());
        detail::check(fb_tensor_copy(raw_.get(), out.data(), out.size()));
        return out;
    }
    /* The element of a tensor that has only one. */
    template <class T> T item() const {
        std::vector<T> all = to_vector<T>();
        if (all.size() != 1) throw std::invalid_argument("the tensor has more or less than one element");
        return all[0];
    }
    void backward() const { detail::check(fb_backward(raw_.get())); }
    const fb_tensor *get() const noexcept { return raw_.get(); }

  private:
    detail::Owned<fb_tensor> raw_;
};

inline Tensor loss(fb_loss_kind kind, const Tensor &output, const Tensor &target) {
    return Tensor(fb_loss(kind, output.get(), target.get()));
}

class LoraOptions {
  public:
    std::size_t rank = 8;
    double alpha = 8, dropout = 0;
    std::vector<std::string> targets;
};

class Optimizer;

class Program {
  public:
    /* Takes over an object of the C interface. */
    explicit Program(fb_program *raw) : raw_(detail::check(raw)) {}
    static Program load(const std::string &path) { return Program(fb_program_load(path.c_str())); }
    static Program load_bytes(const void *bytes, std::size_t size) { return Program(fb_program_load_bytes(bytes, size)); }
    static Program load_bytes(const std::vector<std::uint8_t> &bytes) { return load_bytes(bytes.data(), bytes.size()); }
    void save(const std::string &path) const { detail::check(fb_program_save(raw_.get(), path.c_str())); }
    std::vector<std::uint8_t> save_bytes() const {
        std::uint8_t *bytes = nullptr;
        std::size_t size = 0;
        detail::check(fb_program_save_bytes(raw_.get(), &bytes, &size));
        auto free = [size](std::uint8_t *b) { fb_bytes_free(b, size); };
        std::unique_ptr<std::uint8_t, decltype(free)> owner(bytes, free);
        return std::vector<std::uint8_t>(bytes, bytes + size);
    }

    std::vector<std::string> input_names() const {
        return names(fb_program_input_count(raw_.get()), fb_program_input_name);
    }
    std::vector<std::string> output_names() const {
        return names(fb_program_output_count(raw_.get()), fb_program_output_name);
    }
    std::vector<std::string> parameter_names() const {
        return names(fb_program_parameter_count(raw_.get()), fb_program_parameter_name);
    }
    /* -1 for a dynamic size. */
    std::vector<std::int64_t> input_sizes(std::size_t index) const {
        int32_t ndim = fb_program_input_sizes(raw_.get(), index, nullptr, 0);
        if (ndim < 0) throw Error();
        std::vector<std::int64_t> sizes(static_cast<std::size_t>(ndim));
        fb_program_input_sizes(raw_.get(), index, sizes.data(), sizes.size());
        return sizes;
    }
    Tensor parameter(const std::string &name) const { return Tensor(fb_program_parameter(raw_.get(), name.c_str())); }
    Tensor gradient(const std::string &name) const { return Tensor(fb_program_gradient(raw_.get(), name.c_str())); }
    double clip_grad_norm(double max_norm) const {
        double norm = 0;
        detail::check(fb_clip_grad_norm(raw_.get(), max_norm, &norm));
        return norm;
    }

    void train(bool on = true) { detail::check(fb_program_train(raw_.get(), on ? 1 : 0)); }
    void eval() { train(false); }
    /* The inputs are tensors, in the program's order. */
    template <class... Inputs> std::vector<Tensor> operator()(const Inputs &...inputs) const {
        static_assert((std::is_same_v<Inputs, Tensor> && ...), "inputs are tensors");
        const fb_tensor *given[] = {inputs.get()..., nullptr};
        std::vector<fb_tensor *> out(fb_program_output_count(raw_.get()));
        std::size_t count = 0;
        detail::check(fb_program_run(raw_.get(), given, sizeof...(inputs), out.data(), out.size(), &count));
        std::vector<Tensor> results;
        results.reserve(count);
        for (std::size_t k = 0; k < count; k++) results.emplace_back(out[k]);
        return results;
    }

    Program lora(const LoraOptions &options = {}) const {
        fb_lora_options raw;
        detail::check(fb_lora_options_init(&raw));
        std::vector<const char *> targets;
        for (const std::string &target : options.targets) targets.push_back(target.c_str());
        raw.rank = options.rank;
        raw.alpha = options.alpha;
        raw.dropout = options.dropout;
        raw.targets = targets.data();
        raw.targets_count = targets.size();
        return Program(fb_program_lora(raw_.get(), &raw));
    }
    Program load_adapter(const std::string &folder) const {
        return Program(fb_program_load_adapter(raw_.get(), folder.c_str()));
    }
    void save_adapter(const std::string &folder) const {
        detail::check(fb_program_save_adapter(raw_.get(), folder.c_str()));
    }
    Program merge_lora() const { return Program(fb_program_merge_lora(raw_.get())); }

    /* Trains on samples, the rows of `inputs` and `target`. `progress` is called after each step and returns whether to go
     * on; what it throws ends the training and is thrown here. False: it stopped the training. */
    bool fit(Optimizer &optimizer, fb_loss_kind loss, const std::vector<const Tensor *> &inputs, const Tensor &target,
             const fb_fit_options &options, const std::function<bool(const fb_progress &)> &progress = nullptr);

    const fb_program *get() const noexcept { return raw_.get(); }

  private:
    template <class Name> std::vector<std::string> names(std::size_t count, Name name) const {
        std::vector<std::string> names;
        for (std::size_t k = 0; k < count; k++) names.emplace_back(detail::check(name(raw_.get(), k)));
        return names;
    }
    detail::Owned<fb_program> raw_;
};

/* PyTorch's defaults, to be changed and given to an Optimizer. */
inline fb_optimizer_options optimizer_options(fb_optimizer_kind kind) {
    fb_optimizer_options options;
    detail::check(fb_optimizer_options_init(&options, kind));
    return options;
}
inline fb_fit_options fit_options() {
    fb_fit_options options;
    detail::check(fb_fit_options_init(&options));
    return options;
}

class Optimizer {
  public:
    Optimizer(const Program &program, fb_optimizer_kind kind, double lr)
        : raw_(detail::check(fb_optimizer_new(program.get(), kind, lr))) {}
    Optimizer(const Program &program, fb_optimizer_kind kind, const fb_optimizer_options &options)
        : raw_(detail::check(fb_optimizer_new_with(program.get(), kind, &options))) {}
    void step() { detail::check(fb_optimizer_step(raw_.get())); }
    void zero_grad() { detail::check(fb_optimizer_zero_grad(raw_.get())); }
    double lr() const { return fb_optimizer_lr(raw_.get()); }
    void set_lr(double lr) { detail::check(fb_optimizer_set_lr(raw_.get(), lr)); }
    fb_optimizer *get() noexcept { return raw_.get(); }

  private:
    detail::Owned<fb_optimizer> raw_;
};

inline bool Program::fit(Optimizer &optimizer, fb_loss_kind loss, const std::vector<const Tensor *> &inputs,
                         const Tensor &target, const fb_fit_options &options,
                         const std::function<bool(const fb_progress &)> &progress) {
    struct Call {
        const std::function<bool(const fb_progress &)> &progress;
        std::exception_ptr thrown;
    } call{progress, nullptr};
    fb_progress_callback callback = [](const fb_progress *now, void *user) -> int32_t {
        Call &call = *static_cast<Call *>(user);
        try {
            return call.progress(*now) ? 0 : 1;
        } catch (...) {
            /* No exception may cross the library; it goes on below. */
            call.thrown = std::current_exception();
            return 1;
        }
    };
    std::vector<const fb_tensor *> raw;
    for (const Tensor *input : inputs) raw.push_back(input->get());
    int32_t status = fb_fit(raw_.get(), optimizer.get(), loss, raw.data(), raw.size(), target.get(), &options,
                            progress ? callback : nullptr, &call);
    if (call.thrown) std::rethrow_exception(call.thrown);
    if (status == 0) return true;
    Error error;
    if (error.kind() == FB_ERROR_STOPPED) return false;
    throw error;
}

} // namespace firebrand

#endif
