// Devices and transforms: the quotient polynomial h = (A B - C) / Z.
//
// The order of the scalars alternates so that no transform permutes them: an
// interpolation leaves coefficients in bit-reversed order, an evaluation takes
// them so. Only h is put into natural order, at the end.

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "border.cuh"

#include <ntt/ntt.cuh>

namespace {

using Order = NTT::InputOutputOrder;
using Direction = NTT::Direction;
using Type = NTT::Type;

// Opens the permutation, which the library keeps to itself.
struct Transform : NTT {
    static void permute(stream_t& stream, fr_t* scalars, uint32_t log_len) {
        bit_rev(scalars, scalars, log_len, stream);
    }
};

void interpolate(stream_t& stream, fr_t* values, uint32_t log_len, Type type) {
    NTT::Base_dev_ptr(stream, values, log_len, Order::NR, Direction::inverse, type);
}

void evaluate_on_coset(stream_t& stream, fr_t* coefficients, uint32_t log_len) {
    NTT::Base_dev_ptr(stream, coefficients, log_len, Order::RN, Direction::forward, Type::coset);
}

__global__ void multiply_into(fr_t* out, const fr_t* left, const fr_t* right, size_t len) {
#ifdef __CUDA_ARCH__
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < len; i += step) {
        fr_t product = left[i];
        product *= right[i];
        out[i] = product;
    }
#endif
}

// left = (left - right) * factor
__global__ void subtract_and_scale(fr_t* left, const fr_t* right, cuzk_scalar factor, size_t len) {
#ifdef __CUDA_ARCH__
    const fr_t scale = fr_mont(factor.words);
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < len; i += step) {
        fr_t difference = left[i];
        difference -= right[i];
        difference *= scale;
        left[i] = difference;
    }
#endif
}

constexpr uint32_t THREADS = 256;

uint32_t grid(const cuzk_device* device, size_t len) {
    return cuzk::blocks(len, THREADS, device->processors * 16);
}

using Tables = std::vector<NTTParameters>;

// The library's tables, which are no const object.
Tables& tables(bool inverse) { return const_cast<Tables&>(NTTParameters::all(inverse)); }

// Room for `most`, without the end of what was there: the destructor of tables frees them,
// moved or not, where a call of the runtime fails in it.
void make_room(Tables& tables, size_t most) {
    if (tables.capacity() < most) {
        auto* larger = new Tables;
        larger->reserve(most);
        for (NTTParameters& each : tables) {
            larger->push_back(std::move(each));
        }
        tables.swap(*larger);
    }
}

// Makes the tables of a device. The library makes those of all devices that are there when
// it is first asked, in vectors that only it can name: later ones are put behind those.
// Others read the vectors meanwhile, so that they must not move.
void make_tables(size_t id, size_t most) {
    Tables& forward = tables(false);
    Tables& inverse = tables(true);
    if (id == 0) {
        // Nobody reads them yet. Where there is no memory for it, this device has its own.
        try {
            make_room(forward, most);
            make_room(inverse, most);
        } catch (const std::bad_alloc&) {
        }
        return;
    }
    cuzk::require(id < std::min(forward.capacity(), inverse.capacity()),
                  "no memory for the tables of one more device");
    forward.emplace_back(false, static_cast<int>(id));
    try {
        inverse.emplace_back(true, static_cast<int>(id));
    } catch (...) {
        forward.pop_back();
        throw;
    }
}

}  // namespace

int32_t cuzk_device_open(int32_t ordinal, cuzk_device** device, void** stream,
                         uint32_t* processors, cuzk_message message) {
    return cuzk::guarded(nullptr, message, [&] {
        cuzk::require(device != nullptr && stream != nullptr && processors != nullptr,
                      "no place for the device");
        const gpu_t& gpu = cuzk::opened(ordinal, make_tables);
        cuzk::check(cudaSetDevice(gpu.cid()), "cudaSetDevice");
        // Its tables; their launches have also loaded this unit's code.
        cuzk::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        auto* opened = new cuzk_device(gpu);
        *device = opened;
        *stream = static_cast<cudaStream_t>(opened->stream);
        *processors = opened->processors;
    });
}

int32_t cuzk_device_close(cuzk_device* device, cuzk_message message) {
    // Whichever device is selected: one that fails every call is closed too.
    return cuzk::guarded(nullptr, message, [&] { delete device; });
}

int32_t cuzk_transform(cuzk_device* device, void* d_scalars, uint32_t log_len,
                       uint32_t direction, uint32_t coset, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        cuzk::require(log_len <= MAX_LG_DOMAIN_SIZE, "a domain beyond the tables");
        if (log_len == 0) {
            return;
        }
        NTT::Base_dev_ptr(device->stream, static_cast<fr_t*>(d_scalars), log_len, Order::NN,
                          direction == 0 ? Direction::forward : Direction::inverse,
                          coset == 0 ? Type::standard : Type::coset);
    });
}

int32_t cuzk_quotient_left(cuzk_device* device, void* d_a, uint32_t log_len,
                           cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        cuzk::require(log_len >= 1 && log_len <= MAX_LG_DOMAIN_SIZE, "a domain beyond the tables");
        stream_t& stream = device->stream;
        auto* a = static_cast<fr_t*>(d_a);
        interpolate(stream, a, log_len, Type::standard);
        evaluate_on_coset(stream, a, log_len);
    });
}

int32_t cuzk_quotient(cuzk_device* device, void* d_a, void* d_b, void* d_c,
                      uint32_t log_len, uint32_t c_given, uint32_t transforms,
                      const cuzk_scalar* vanishing_inverse, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        cuzk::require(log_len >= 1 && log_len <= MAX_LG_DOMAIN_SIZE, "a domain beyond the tables");
        cuzk::require(transforms == 6 || transforms == 7, "six transforms or seven");
        stream_t& stream = device->stream;
        auto* a = static_cast<fr_t*>(d_a);
        auto* b = static_cast<fr_t*>(d_b);
        auto* c = static_cast<fr_t*>(d_c);
        const size_t len = size_t(1) << log_len;
        const uint32_t blocks = grid(device, len);

        if (c_given == 0) {
            multiply_into<<<blocks, THREADS, 0, stream>>>(c, c, b, len);
            cuzk::check(cudaGetLastError(), "multiply_into");
        }
        interpolate(stream, b, log_len, Type::standard);
        interpolate(stream, c, log_len, Type::standard);
        evaluate_on_coset(stream, b, log_len);
        multiply_into<<<blocks, THREADS, 0, stream>>>(a, a, b, len);
        cuzk::check(cudaGetLastError(), "multiply_into");
        if (transforms == 7) {
            evaluate_on_coset(stream, c, log_len);
            subtract_and_scale<<<blocks, THREADS, 0, stream>>>(a, c, *vanishing_inverse, len);
            cuzk::check(cudaGetLastError(), "subtract_and_scale");
            interpolate(stream, a, log_len, Type::coset);
        } else {
            interpolate(stream, a, log_len, Type::coset);
            subtract_and_scale<<<blocks, THREADS, 0, stream>>>(a, c, *vanishing_inverse, len);
            cuzk::check(cudaGetLastError(), "subtract_and_scale");
        }
        Transform::permute(stream, a, log_len);
    });
}
