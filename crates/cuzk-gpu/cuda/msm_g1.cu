// Multi-scalar multiplication and sums in G1.

#include "msm.cuh"

using Sums = cuzk::Msm<xyzz_t<fp_t>>;

int32_t cuzk_msm_g1(cuzk_device* device, const void* d_points, const void* d_scalars,
                    size_t count, size_t chunk, uint32_t window_bits, void* d_work,
                    size_t work_len, void* d_rows, size_t rows_len, cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        Sums::run(device, d_points, d_scalars, count, chunk, window_bits, d_work, work_len,
                  d_rows, rows_len);
    });
}

int32_t cuzk_sum_g1(cuzk_device* device, const void* d_points, size_t points_len,
                    const uint32_t* d_entries, size_t entries_len, const uint32_t* d_count,
                    void* d_work, size_t work_len, void* d_row, size_t row_len,
                    cuzk_message message) {
    return cuzk::guarded(device, message, [&] {
        Sums::sum(device, d_points, points_len, d_entries, entries_len, d_count, d_work, work_len,
                  d_row, row_len);
    });
}
