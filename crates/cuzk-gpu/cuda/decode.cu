// Points of a key file to points in memory: big-endian coordinates to Montgomery
// limbs, with the checks that a decoder owes: flags, range, infinity, the curve.

#include "border.cuh"

namespace {

constexpr uint32_t THREADS = 128;
constexpr uint64_t ENCODING = 1;
constexpr uint64_t NOT_ON_CURVE = 2;
constexpr uint64_t INFINITY_POINT = 3;

#ifdef __CUDA_ARCH__
// Reads 48 big-endian bytes as a field element; false if it is not below the
// modulus (the flag bits lie above it). `any` collects the words.
__device__ __forceinline__ bool element(const uint32_t* bytes, fp_t& out, uint32_t& any) {
    uint32_t words[12];
    for (int i = 0; i < 12; i++) {
        words[i] = __byte_perm(bytes[11 - i], 0, 0x0123);
        any |= words[i];
    }
    bool below = false;
    for (int i = 11; i >= 0; i--) {
        const uint32_t limit = device::BLS12_381_P[i];
        if (words[i] != limit) {
            below = words[i] < limit;
            break;
        }
    }
    fp_t value = fp_mont(words);
    value.to();
    out = value;
    return below;
}

__device__ __forceinline__ fp_t four() {
    fp_t two = fp_t::one() + fp_t::one();
    return two + two;
}

__device__ __forceinline__ bool equal(const fp_t& left, const fp_t& right) {
    fp_t difference = left - right;
    return difference.is_zero();
}

__device__ __forceinline__ void report(uint64_t* fault, uint64_t index, uint64_t what) {
    atomicMin(reinterpret_cast<unsigned long long*>(fault),
              static_cast<unsigned long long>(index * 4 + what));
}
#endif

__launch_bounds__(THREADS) __global__
void decode_g1(const uint32_t* bytes, size_t count, uint64_t first, uint32_t* points,
               uint64_t* fault) {
#ifdef __CUDA_ARCH__
    const size_t step = size_t(gridDim.x) * THREADS;
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < count; i += step) {
        const uint32_t* from = bytes + i * 24;
        fp_t x, y;
        uint32_t any = 0;
        bool below = element(from, x, any);
        below = element(from + 12, y, any) && below;
        uint32_t* to = points + i * 24;
        x.store(to);
        y.store(to + 12);
        // The flag of infinity, alone, is the encoding of that point.
        if (any == 0x40000000u && __byte_perm(from[0], 0, 0x0123) == any) {
            report(fault, first + i, INFINITY_POINT);
        } else if (!below) {
            report(fault, first + i, ENCODING);
        } else if (!equal(y * y, x * x * x + four())) {
            report(fault, first + i, NOT_ON_CURVE);
        }
    }
#endif
}

__launch_bounds__(THREADS) __global__
void decode_g2(const uint32_t* bytes, size_t count, uint64_t first, uint32_t* points,
               uint64_t* fault) {
#ifdef __CUDA_ARCH__
    const size_t step = size_t(gridDim.x) * THREADS;
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < count; i += step) {
        const uint32_t* from = bytes + i * 48;
        fp_t x[2], y[2];
        uint32_t any = 0;
        bool below = element(from, x[1], any);
        below = element(from + 12, x[0], any) && below;
        below = element(from + 24, y[1], any) && below;
        below = element(from + 36, y[0], any) && below;
        uint32_t* to = points + i * 48;
        x[0].store(to);
        x[1].store(to + 12);
        y[0].store(to + 24);
        y[1].store(to + 36);
        if (any == 0x40000000u && __byte_perm(from[0], 0, 0x0123) == any) {
            report(fault, first + i, INFINITY_POINT);
            continue;
        }
        if (!below) {
            report(fault, first + i, ENCODING);
            continue;
        }
        // y^2 = x^3 + 4 (1 + u), u^2 = -1.
        const fp_t square[2] = {(x[0] + x[1]) * (x[0] - x[1]), x[0] * x[1] + x[0] * x[1]};
        const fp_t cube[2] = {square[0] * x[0] - square[1] * x[1],
                              square[0] * x[1] + square[1] * x[0]};
        const fp_t left[2] = {(y[0] + y[1]) * (y[0] - y[1]), y[0] * y[1] + y[0] * y[1]};
        if (!equal(left[0], cube[0] + four()) || !equal(left[1], cube[1] + four())) {
            report(fault, first + i, NOT_ON_CURVE);
        }
    }
#endif
}

}  // namespace

int32_t cuzk_decode_g1(cuzk_device* device, void* stream, const void* d_bytes,
                       size_t count, uint64_t first_index, void* d_points,
                       uint64_t* d_fault, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        decode_g1<<<cuzk::blocks(count, THREADS, device->processors * 16), THREADS, 0,
                    static_cast<cudaStream_t>(stream)>>>(
            static_cast<const uint32_t*>(d_bytes), count, first_index,
            static_cast<uint32_t*>(d_points), d_fault);
        cuzk::check(cudaGetLastError(), "decode_g1");
    });
}

int32_t cuzk_decode_g2(cuzk_device* device, void* stream, const void* d_bytes,
                       size_t count, uint64_t first_index, void* d_points,
                       uint64_t* d_fault, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        decode_g2<<<cuzk::blocks(count, THREADS, device->processors * 16), THREADS, 0,
                    static_cast<cudaStream_t>(stream)>>>(
            static_cast<const uint32_t*>(d_bytes), count, first_index,
            static_cast<uint32_t*>(d_points), d_fault);
        cuzk::check(cudaGetLastError(), "decode_g2");
    });
}
