// The functions that Rust calls.

#include <memory>

#include <ff/bls12-381.hpp>
#include <ntt/ntt.cuh>

#include "guard.cuh"

// The transform of `count` scalars (Montgomery form, 32 bytes each) in host memory, in
// place and in natural order. Proves that the toolkit, the headers, the list of devices
// and the runtime go together.
extern "C" cuzk_status cuzk_cuda_smoke(int32_t device, void* scalars, size_t count) {
    return cuzk_guarded([&] {
        if (device < 0 || scalars == nullptr || count == 0 || (count & (count - 1)) != 0)
            throw cuda_error{CUZK_ARGUMENT, "a device, and scalars whose number is a power of two"};
        if (ngpus() <= static_cast<size_t>(device)) CUDA_OK(cudaErrorNoDevice);
        uint32_t log_count = 0;
        while ((size_t{1} << log_count) < count) log_count++;
        const RustError error = NTT::Base(select_gpu(device), static_cast<fr_t*>(scalars), log_count,
                                          NTT::InputOutputOrder::NN, NTT::Direction::forward,
                                          NTT::Type::standard);
        const std::unique_ptr<char, decltype(&free)> message{error.message, &free};
        if (error.code != cudaSuccess)
            throw cuda_error{error.code, std::string{message ? message.get() : "the transform failed"}};
    });
}
