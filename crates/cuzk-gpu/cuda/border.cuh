// Inside the border: the device handle, errors as exceptions, and the guard that
// turns every exception into a code and a message.
#pragma once

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include <ff/bls12-381-fp2.hpp>
#include <ec/jacobian_t.hpp>
#include <ec/xyzz_t.hpp>
#include <util/gpu_t.cuh>

#include "border.h"

namespace cuzk {

// One of the counters that each device has for the kernel that fills buckets: two sums
// that run at the same time must not share one.
class counter {
    int ordinal;

public:
    // As many of one device may be held at a time.
    static constexpr uint32_t MOST = 64;

    uint32_t number;

    explicit counter(int ordinal);
    ~counter();
    counter(const counter&) = delete;
    counter& operator=(const counter&) = delete;
};

}  // namespace cuzk

// Whoever opens a device has one, with a stream of its own.
struct cuzk_device {
    const gpu_t& gpu;
    cuzk::counter counter;
    stream_t stream;
    uint32_t processors;

    explicit cuzk_device(const gpu_t& gpu)
        : gpu(gpu),
          counter(gpu.cid()),
          stream(gpu.id()),
          processors(static_cast<uint32_t>(gpu.sm_count())) {}
};

namespace cuzk {

// Codes below zero are ours, above zero the runtime's.
constexpr int32_t INVALID = -1;
constexpr int32_t UNEXPECTED = -2;

struct failure : std::runtime_error {
    int32_t code;
    failure(int32_t code, const std::string& what) : std::runtime_error(what), code(code) {}
};

inline void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) {
        throw failure(static_cast<int32_t>(code),
                      std::string(what) + ": " + cudaGetErrorString(code));
    }
}

inline void require(bool holds, const char* what) {
    if (!holds) {
        throw failure(INVALID, what);
    }
}

inline void tell(cuzk_message message, const char* text) noexcept {
    if (message.text != nullptr && message.len != 0) {
        std::snprintf(message.text, message.len, "%s", text);
    }
}

// Runs `body` with the device selected; nothing is thrown past it.
template <class Body>
int32_t guarded(const cuzk_device* device, cuzk_message message, Body body) noexcept {
    try {
        // An error that an earlier call left is not this one's.
        (void)cudaGetLastError();
        if (device != nullptr) {
            check(cudaSetDevice(device->gpu.cid()), "cudaSetDevice");
        }
        body();
        return 0;
    } catch (const failure& error) {
        tell(message, error.what());
        return error.code;
    } catch (const sppark_error& error) {
        tell(message, error.what());
        // The kernels' library negates the runtime's codes.
        return error.code() == 0 ? UNEXPECTED : (error.code() < 0 ? -error.code() : error.code());
    } catch (const std::exception& error) {
        tell(message, error.what());
        return UNEXPECTED;
    } catch (...) {
        tell(message, "an exception of an unknown type");
        return UNEXPECTED;
    }
}

// The device of an ordinal, with a context. The first time it is numbered `id`, and
// `prepare` makes what the library keeps of it; of at most `most` devices.
const gpu_t& opened(int32_t ordinal, void (*prepare)(size_t id, size_t most));

// Blocks for `count` threads of `per_block`, at most `most`: kernels stride.
inline uint32_t blocks(size_t count, uint32_t per_block, uint32_t most) {
    const size_t wanted = (count + per_block - 1) / per_block;
    return static_cast<uint32_t>(wanted < most ? (wanted == 0 ? 1 : wanted) : most);
}

}  // namespace cuzk
