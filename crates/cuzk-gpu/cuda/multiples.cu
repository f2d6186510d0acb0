// Multiples of one point, for key generation: a table holds every digit's multiple
// of the base for each window of a scalar, and a product is one entry a window.

#include "border.cuh"

namespace {

constexpr uint32_t THREADS = 128;
constexpr uint32_t SCALAR_BITS = 255;
// Points that share an inversion.
constexpr uint32_t SHARE = 64;

// rows[i] = scalars[i] * base, in coordinates X, Y, ZZZ, ZZ.
template <class bucket_t, class bucket_h = class bucket_t::mem_t,
          class affine_t = class bucket_t::affine_t, class affine_h = class affine_t::mem_t>
__launch_bounds__(THREADS) __global__
void multiply(const affine_h table[], uint32_t window_bits, const fr_t scalars[], size_t count,
              bucket_h rows[]) {
#ifdef __CUDA_ARCH__
    constexpr uint32_t degree = bucket_t::degree;
    const size_t step = size_t(gridDim.x) * THREADS / degree;
    const uint32_t mask = (1u << window_bits) - 1;
    for (size_t i = (size_t(blockIdx.x) * THREADS + threadIdx.x) / degree; i < count; i += step) {
        fr_t scalar = scalars[i];
        scalar.from();
        bucket_t sum;
        sum.inf();
        #pragma unroll 1
        for (uint32_t bit = 0, window = 0; bit < SCALAR_BITS; bit += window_bits, window++) {
            const uint32_t word = bit / 32;
            uint64_t pair = scalar[word];
            if (word < 7) {
                pair |= uint64_t(scalar[word + 1]) << 32;
            }
            const uint32_t digit = uint32_t(pair >> (bit % 32)) & mask;
            if (digit != 0) {
                const affine_t entry = table[(size_t(window) << window_bits) + digit];
                sum.add(entry);
            }
        }
        rows[i] = sum;
    }
#endif
}

// Affine points of rows. Each thread inverts the product of its rows' ZZZ and takes
// the single inverses out of that (Montgomery); `products` holds the partial ones.
// 1 / ZZ = (ZZ / ZZZ)^2.
template <class field_t, class field_h = class field_t::mem_t>
__launch_bounds__(THREADS) __global__
void normalise(const field_h rows[], size_t count, field_h products[], field_h points[]) {
#ifdef __CUDA_ARCH__
    constexpr uint32_t degree = field_t::degree;
    const size_t thread = (size_t(blockIdx.x) * THREADS + threadIdx.x) / degree;
    const size_t threads = size_t(gridDim.x) * THREADS / degree;
    field_t product = field_t::one();
    size_t last = thread;
    #pragma unroll 1
    for (size_t i = thread; i < count; i += threads) {
        const field_t zzz = rows[4 * i + 2];
        products[i] = product;
        if (!zzz.is_zero()) {
            product *= zzz;
        }
        last = i;
    }
    // Two lanes invert together: also those without rows take part.
    __syncwarp();
    field_t inverse = 1 / product;
    if (thread >= count) {
        return;
    }
    #pragma unroll 1
    for (size_t i = last;; i -= threads) {
        const field_t zzz = rows[4 * i + 2];
        if (zzz.is_zero()) {
            points[2 * i].zero();
            points[2 * i + 1].zero();
        } else {
            const field_t before = products[i];
            const field_t of_zzz = inverse * before;
            inverse *= zzz;
            const field_t zz = rows[4 * i + 3];
            field_t of_zz = of_zzz * zz;
            of_zz *= of_zz;
            const field_t x = rows[4 * i];
            const field_t y = rows[4 * i + 1];
            points[2 * i] = x * of_zz;
            points[2 * i + 1] = y * of_zzz;
        }
        if (i == thread) {
            break;
        }
    }
#endif
}

template <class field_t>
void multiples(cuzk_device* device, const void* d_table, size_t table_len,
               uint32_t window_bits, const void* d_scalars, size_t count, void* d_work,
               size_t work_len, void* d_points, size_t points_len) {
    using bucket_t = xyzz_t<field_t>;
    using field_h = class field_t::mem_t;
    cuzk::require(window_bits >= 1 && window_bits <= 20, "windows of 1 to 20 bits");
    const size_t windows = (SCALAR_BITS + window_bits - 1) / window_bits;
    cuzk::require(table_len >= windows << window_bits, "a table of fewer windows");
    cuzk::require(count != 0, "at least one scalar");
    cuzk::require(points_len >= count, "too little room for multiples");
    cuzk::require(work_len >= count * 5 * sizeof(field_h), "too little working memory");
    auto* rows = static_cast<field_h*>(d_work);
    auto* products = rows + 4 * count;
    const uint32_t lanes = bucket_t::degree;
    const cudaStream_t stream = device->stream;
    multiply<bucket_t><<<cuzk::blocks(count * lanes, THREADS, device->processors * 16), THREADS, 0,
                         stream>>>(
        static_cast<const typename bucket_t::affine_t::mem_t*>(d_table), window_bits,
        static_cast<const fr_t*>(d_scalars), count, reinterpret_cast<typename bucket_t::mem_t*>(rows));
    cuzk::check(cudaGetLastError(), "multiply");
    const size_t sharing = (count + SHARE - 1) / SHARE;
    normalise<field_t><<<cuzk::blocks(sharing * lanes, THREADS, 1u << 30), THREADS, 0, stream>>>(
        rows, count, products, static_cast<field_h*>(d_points));
    cuzk::check(cudaGetLastError(), "normalise");
}

}  // namespace

int32_t cuzk_multiples_g1(cuzk_device* device, const void* d_table, size_t table_len,
                          uint32_t window_bits, const void* d_scalars, size_t count,
                          void* d_work, size_t work_len, void* d_points,
                          size_t points_len, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        multiples<fp_t>(device, d_table, table_len, window_bits, d_scalars, count, d_work,
                        work_len, d_points, points_len);
    });
}

int32_t cuzk_multiples_g2(cuzk_device* device, const void* d_table, size_t table_len,
                          uint32_t window_bits, const void* d_scalars, size_t count,
                          void* d_work, size_t work_len, void* d_points,
                          size_t points_len, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        multiples<fp2_t>(device, d_table, table_len, window_bits, d_scalars, count, d_work,
                        work_len, d_points, points_len);
    });
}
