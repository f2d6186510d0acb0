// Scalars by their value: nearly all of a Filecoin witness is zero or one, and
// only the rest needs a multiplication.

#include "border.cuh"

namespace {

constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / 32;
constexpr uint32_t CLASSES = 3;

#ifdef __CUDA_ARCH__
// Whether the words are below the modulus.
__device__ __forceinline__ bool is_reduced(const fr_t& scalar) {
    for (int word = 7; word >= 0; word--) {
        const uint32_t have = scalar[word];
        const uint32_t limit = device::BLS12_381_r[word];
        if (have != limit) {
            return have < limit;
        }
    }
    return false;
}

// Where the matching threads of a block append to a list: each one's place.
// Every thread of the block calls it; `shared` has WARPS + 1 words.
__device__ __forceinline__ uint32_t place(bool matches, uint32_t* counter, uint32_t* shared) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t mask = __ballot_sync(0xffffffff, matches);
    if (lane == 0) {
        shared[warp] = __popc(mask);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < WARPS; i++) {
            const uint32_t count = shared[i];
            shared[i] = sum;
            sum += count;
        }
        shared[WARPS] = sum == 0 ? 0 : atomicAdd(counter, sum);
    }
    __syncthreads();
    const uint32_t at = shared[WARPS] + shared[warp] + __popc(mask & ((1u << lane) - 1));
    __syncthreads();
    return at;
}
#endif

__launch_bounds__(THREADS) __global__
void split(const fr_t* scalars, size_t scalars_len, const uint32_t* index, size_t count,
           uint32_t* ones, uint32_t* rest, uint32_t* counts) {
#ifdef __CUDA_ARCH__
    __shared__ uint32_t shared[WARPS + 1];
    const fr_t one = fr_t::one();
    const size_t step = size_t(gridDim.x) * THREADS;
    // Whole blocks go round together, for the barriers.
    for (size_t base = size_t(blockIdx.x) * THREADS; base < count; base += step) {
        const size_t entry = base + threadIdx.x;
        bool is_one = false;
        bool is_rest = false;
        bool is_wrong = false;
        if (entry < count) {
            const size_t at = index == nullptr ? entry : index[entry];
            if (at >= scalars_len) {
                is_wrong = true;
            } else {
                const fr_t scalar = scalars[at];
                uint32_t difference = 0;
                for (int word = 0; word < 8; word++) {
                    difference |= scalar[word] ^ one[word];
                }
                is_one = difference == 0;
                is_wrong = !is_reduced(scalar);
                is_rest = !is_one && !is_wrong && !scalar.is_zero();
            }
        }
        const uint32_t one_at = place(is_one, &counts[0], shared);
        if (is_one) {
            ones[one_at] = static_cast<uint32_t>(entry);
        }
        const uint32_t rest_at = place(is_rest, &counts[1], shared);
        if (is_rest) {
            rest[rest_at] = static_cast<uint32_t>(entry);
        }
        if (is_wrong) {
            atomicAdd(&counts[2], 1);
        }
    }
#endif
}

__global__ void gather(const uint4* items, size_t words, const uint32_t* index,
                       const uint32_t* entries, size_t count, uint4* out) {
    // One thread a 16-byte word: neighbours read one item together.
    const size_t total = count * words;
    const size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += step) {
        const size_t k = i / words;
        const size_t entry = entries == nullptr ? k : entries[k];
        const size_t from = index == nullptr ? entry : index[entry];
        out[i] = items[from * words + i % words];
    }
}

}  // namespace

int32_t cuzk_split(cuzk_device* device, const void* d_scalars, size_t scalars_len,
                   const uint32_t* d_index, size_t count, uint32_t* d_ones,
                   uint32_t* d_rest, uint32_t* d_counts, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        cuzk::require(count < (size_t(1) << 31), "entries that 31 bits count");
        cudaStream_t stream = device->stream;
        cuzk::check(cudaMemsetAsync(d_counts, 0, CLASSES * sizeof(uint32_t), stream),
                    "cudaMemsetAsync");
        split<<<cuzk::blocks(count, THREADS, device->processors * 8), THREADS, 0, stream>>>(
            static_cast<const fr_t*>(d_scalars), scalars_len, d_index, count, d_ones, d_rest,
            d_counts);
        cuzk::check(cudaGetLastError(), "split");
    });
}

int32_t cuzk_gather_scalars(cuzk_device* device, const void* d_scalars, size_t scalars_len,
                            const uint32_t* d_index, size_t index_len,
                            const uint32_t* d_entries, size_t entries_len, size_t count,
                            void* d_out, size_t out_len, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        const size_t entries = d_index == nullptr ? scalars_len : index_len;
        cuzk::require(count <= (d_entries == nullptr ? entries : entries_len),
                      "more entries to gather than there are");
        cuzk::require(count <= out_len, "too little room for gathered scalars");
        constexpr size_t words = sizeof(cuzk_scalar) / sizeof(uint4);
        gather<<<cuzk::blocks(count * words, THREADS, device->processors * 16), THREADS, 0,
                 device->stream>>>(static_cast<const uint4*>(d_scalars), words, d_index,
                                   d_entries, count, static_cast<uint4*>(d_out));
        cuzk::check(cudaGetLastError(), "gather");
    });
}

int32_t cuzk_gather_points(cuzk_device* device, const void* d_points, size_t points_len,
                           size_t point_bytes, const uint32_t* d_entries,
                           size_t entries_len, size_t count, void* d_out, size_t out_len,
                           cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        cuzk::require(point_bytes == 96 || point_bytes == 192, "points of 96 or 192 bytes");
        cuzk::require(count <= entries_len && count <= points_len,
                      "more entries to gather than there are");
        cuzk::require(count <= out_len, "too little room for gathered points");
        const size_t words = point_bytes / sizeof(uint4);
        gather<<<cuzk::blocks(count * words, THREADS, device->processors * 16), THREADS, 0,
                 device->stream>>>(static_cast<const uint4*>(d_points), words, nullptr,
                                   d_entries, count, static_cast<uint4*>(d_out));
        cuzk::check(cudaGetLastError(), "gather");
    });
}
