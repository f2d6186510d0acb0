// Multi-scalar multiplication over sppark's kernels, for one group a unit.
//
// A chunk of scalars is broken into signed digits, a window each; the digits'
// entries are sorted by bucket; buckets are accumulated, then integrated to two
// points a thread and window, then folded to one point a window. Everything lies
// in memory of the caller; nothing is allocated and nothing is waited for.
#pragma once

#include "border.cuh"

#define MSM_NSTREAMS 64
#define SPPARK_DONT_INSTANTIATE_TEMPLATES
#include <msm/pippenger.cuh>

namespace cuzk {

static_assert(MSM_NSTREAMS == counter::MOST, "a counter each");

// The two points that `integrate` leaves for each of a window's threads are R, the
// sum of its buckets weighted from 1, and A, their plain sum; a thread's first
// bucket lies `weight` above the window's first. The window's value is the sum of
// R + weight * A.
template <class bucket_t, class bucket_h = class bucket_t::mem_t>
__launch_bounds__(MSM_NTHREADS) __global__
void fold(bucket_h buckets[], uint32_t window_bits, uint32_t scalar_bits, bucket_h rows[]) {
#ifdef __CUDA_ARCH__
    constexpr uint32_t degree = bucket_t::degree;
    constexpr uint32_t threads = MSM_NTHREADS / degree;
    const uint32_t thread = threadIdx.x / degree;
    bucket_h* row = buckets + (size_t(blockIdx.x) << (window_bits - 1));

    // The last window may have fewer bits: its buckets are spread over the row,
    // 2^spread of them with the same weight.
    uint32_t spread = 0;
    if ((blockIdx.x + 1) * window_bits > scalar_bits) {
        spread = (blockIdx.x + 1) * window_bits - scalar_bits;
    }
    const uint32_t per_thread_log = window_bits - 1 - (31 - __clz(threads));
    const uint32_t weight = (thread << per_thread_log) >> spread;

    const bucket_t plain = row[2 * thread + 1];
    bucket_t sum;
    sum.inf();
    #pragma unroll 1
    for (uint32_t bit = window_bits - 1; bit-- != 0;) {
        const bucket_t twice = sum;
        sum.uadd(twice);
        if (weight >> bit & 1) {
            sum.uadd(plain);
        }
    }
    const bucket_t weighted = row[2 * thread];
    sum.uadd(weighted);

    __syncthreads();
    row[thread] = sum;
    #pragma unroll 1
    for (uint32_t half = threads / 2; half != 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            const bucket_t other = row[thread + half];
            sum.uadd(other);
            row[thread] = sum;
        }
    }
    if (thread == 0) {
        rows[blockIdx.x] = sum;
    }
#endif
}

// rows[0] = the sum of partial[0..count], by one block.
template <class bucket_t, class bucket_h = class bucket_t::mem_t>
__launch_bounds__(MSM_NTHREADS) __global__
void total(bucket_h partial[], uint32_t count, bucket_h rows[], bool add) {
#ifdef __CUDA_ARCH__
    constexpr uint32_t degree = bucket_t::degree;
    constexpr uint32_t threads = MSM_NTHREADS / degree;
    const uint32_t thread = threadIdx.x / degree;

    bucket_t sum;
    sum.inf();
    #pragma unroll 1
    for (uint32_t i = thread; i < count; i += threads) {
        const bucket_t other = partial[i];
        sum.uadd(other);
    }
    const uint32_t used = count < threads ? count : threads;
    __syncthreads();
    if (thread < used) {
        partial[thread] = sum;
    }
    #pragma unroll 1
    for (uint32_t half = threads / 2; half != 0; half /= 2) {
        __syncthreads();
        if (thread < half && thread + half < used) {
            const bucket_t other = partial[thread + half];
            sum.uadd(other);
            partial[thread] = sum;
        }
    }
    if (thread == 0) {
        if (add) {
            const bucket_t other = rows[0];
            sum.uadd(other);
        }
        rows[0] = sum;
    }
#endif
}

template <class bucket_t>
struct Msm {
    using bucket_h = class bucket_t::mem_t;
    using affine_h = class bucket_t::affine_t::mem_t;

    static constexpr uint32_t SCALAR_BITS = 255;

    static uint32_t windows(uint32_t window_bits) {
        return (SCALAR_BITS - 1) / window_bits + 1;
    }

    // Partial sums of `batch_addition`: one a warp.
    static size_t partials(const cuzk_device* device) {
        return size_t(device->processors) * BATCH_ADD_BLOCK_SIZE / WARP_SZ;
    }

    // The parts of the working memory, each aligned to 256 bytes.
    struct Work {
        bucket_h* buckets;
        bucket_h* partial;
        uint32_t* histogram;
        uint2* sorted;
        uint32_t* digits;
        size_t bytes;

        Work(const cuzk_device* device, void* base, size_t stride, uint32_t window_bits) {
            const size_t count = windows(window_bits);
            const size_t row = size_t(1) << (window_bits - 1);
            size_t at = 0;
            auto take = [&](size_t bytes) {
                char* start = static_cast<char*>(base) + at;
                at += (bytes + 255) / 256 * 256;
                return static_cast<void*>(start);
            };
            buckets = static_cast<bucket_h*>(take(count * row * sizeof(bucket_h)));
            partial = static_cast<bucket_h*>(take(partials(device) * sizeof(bucket_h)));
            histogram = static_cast<uint32_t*>(take(count * row * sizeof(uint32_t)));
            sorted = static_cast<uint2*>(take(2 * stride * sizeof(uint2)));
            digits = static_cast<uint32_t*>(take(count * stride * sizeof(uint32_t)));
            bytes = at;
        }
    };

    static void run(cuzk_device* device, const void* d_points, const void* d_scalars,
                    size_t count, size_t chunk, uint32_t window_bits, void* d_work,
                    size_t work_len, void* d_rows, size_t rows_len) {
        require(window_bits >= 10 && window_bits <= 20, "windows of 10 to 20 bits");
        require(count != 0 && chunk != 0 && chunk % WARP_SZ == 0, "chunks of whole warps");
        require(chunk <= (size_t(1) << 31) - WARP_SZ, "chunks that 31 bits count");
        const uint32_t rows = windows(window_bits);
        const size_t chunks = (count + chunk - 1) / chunk;
        require(rows_len >= chunks * rows * sizeof(bucket_h), "room for a point a window and chunk");

        const size_t full = (count + WARP_SZ - 1) / WARP_SZ * WARP_SZ;
        const size_t stride = chunk < full ? chunk : full;
        const Work work(device, d_work, stride, window_bits);
        require(work_len >= work.bytes, "too little working memory");

        const auto* points = static_cast<const affine_h*>(d_points);
        const auto* scalars = static_cast<const fr_t*>(d_scalars);
        auto* out = static_cast<bucket_h*>(d_rows);
        for (size_t start = 0; start < count; start += chunk) {
            const size_t len = count - start < chunk ? count - start : chunk;
            one_chunk(device, points + start, scalars + start, len, stride, window_bits, work, out);
            out += rows;
        }
    }

    static void one_chunk(cuzk_device* device, const affine_h* points, const fr_t* scalars,
                          size_t len, size_t stride, uint32_t window_bits, const Work& work,
                          bucket_h* rows) {
        const stream_t& stream = device->stream;
        const uint32_t count = windows(window_bits);
        vec2d_t<uint32_t> digits{work.digits, static_cast<uint32_t>(stride)};
        vec2d_t<uint2> sorted{work.sorted, static_cast<uint32_t>(stride)};
        vec2d_t<uint32_t> histogram{work.histogram, 1u << (window_bits - 1)};

        // The sort wants a power of two of blocks, at most a warp's lanes, and
        // runs best on a third of the device. Never one: a single block reads how many
        // entries it found in the same word that its first thread sets to zero next.
        uint32_t grid = device->processors / 3;
        grid = grid < 2 ? 2 : grid;
        while (grid & (grid - 1)) {
            grid &= grid - 1;
        }
        grid = grid > WARP_SZ ? WARP_SZ : grid;

        breakdown<fr_t><<<2 * grid, 1024, sizeof(fr_t) * 1024, stream>>>(
            digits, scalars, len, count, window_bits, true);
        check(cudaGetLastError(), "breakdown");

        // Two windows a launch; the last window has the bits that are left.
        const uint32_t bits = window_bits - 1;
        const uint32_t last_bits = SCALAR_BITS - window_bits * (count - 1) - 1;
        const size_t shared = sizeof(uint32_t) << DIGIT_BITS;
        for (uint32_t window = 0; window < count; window += 2) {
            const bool pair = window + 1 < count;
            const uint32_t first = window + 1 == count ? last_bits : bits;
            const uint32_t second = window + 2 == count ? last_bits : bits;
            stream.launch_coop(sort, dim3(grid, pair ? 2 : 1), dim3(SORT_BLOCKDIM), shared,
                               digits, len, window, sorted, histogram, bits, first, second);
        }

        // Entries whose lowest digit is one: accumulate leaves them out.
        batch_addition<bucket_t><<<device->processors, BATCH_ADD_BLOCK_SIZE, 0, stream>>>(
            work.partial, points, len, &digits[0][0], histogram[0][0]);
        check(cudaGetLastError(), "batch_addition");

        stream.launch_coop(accumulate<bucket_t, affine_h>, dim3(device->processors), dim3(0), 0,
                           work.buckets, count, window_bits, const_cast<affine_h*>(points),
                           digits, histogram, device->counter.number);

        integrate<bucket_t><<<count, MSM_NTHREADS,
                              sizeof(bucket_h) * MSM_NTHREADS / bucket_t::degree, stream>>>(
            work.buckets, count, window_bits, SCALAR_BITS);
        check(cudaGetLastError(), "integrate");

        fold<bucket_t><<<count, MSM_NTHREADS, 0, stream>>>(work.buckets, window_bits,
                                                           SCALAR_BITS, rows);
        check(cudaGetLastError(), "fold");
        total<bucket_t><<<1, MSM_NTHREADS, 0, stream>>>(
            work.partial, static_cast<uint32_t>(partials(device)), rows, true);
        check(cudaGetLastError(), "total");
    }

    static void sum(cuzk_device* device, const void* d_points, size_t points_len,
                    const uint32_t* d_entries, size_t entries_len, const uint32_t* d_count,
                    void* d_work, size_t work_len, void* d_row, size_t row_len) {
        const size_t count = partials(device);
        require(entries_len <= points_len, "more entries than points");
        require(work_len >= count * sizeof(bucket_h), "too little working memory");
        require(row_len >= sizeof(bucket_h), "too little room for a sum");
        auto* partial = static_cast<bucket_h*>(d_work);
        const stream_t& stream = device->stream;
        batch_addition<bucket_t><<<device->processors, BATCH_ADD_BLOCK_SIZE, 0, stream>>>(
            partial, static_cast<const affine_h*>(d_points), 0, d_entries, *d_count);
        check(cudaGetLastError(), "batch_addition");
        total<bucket_t><<<1, MSM_NTHREADS, 0, stream>>>(
            partial, static_cast<uint32_t>(count), static_cast<bucket_h*>(d_row), false);
        check(cudaGetLastError(), "total");
    }
};

}  // namespace cuzk
