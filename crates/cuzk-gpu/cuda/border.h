// What crosses the border between Rust and CUDA C++: plain values, device
// addresses and lengths. Every function catches everything, returns 0 or an error
// code and writes its reason into `message`; none decides anything. Pointers
// named `d_...` are device addresses. Each comes with its length, which a function
// compares with what it will touch: `count`, 2^`log_len` or a length of its own, in
// elements; in bytes for working memory and rows. All work is queued on the device's
// compute stream and not waited for, unless a function says so.
//
// The Rust side of these declarations is src/cuda/border.rs.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Where a function writes why it failed.
struct cuzk_message {
    char* text;
    size_t len;
};

// A device's compute stream and the tables of its transforms.
struct cuzk_device;

// A scalar in memory: four 64-bit limbs, Montgomery form, as words.
struct cuzk_scalar {
    uint32_t words[8];
};

// Opens the device with this ordinal, makes the transforms' tables and waits for
// them. `stream` receives the CUstream of the compute stream, `processors` the
// number of multiprocessors.
int32_t cuzk_device_open(int32_t ordinal, cuzk_device** device, void** stream,
                         uint32_t* processors, cuzk_message message);
// Closes it. Its stream must be idle.
int32_t cuzk_device_close(cuzk_device* device, cuzk_message message);

// Transforms 2^log_len scalars in place. `direction` 0 evaluates, 1 interpolates;
// `coset` 1 on the coset of the generator. Natural order in and out.
int32_t cuzk_transform(cuzk_device* device, void* d_scalars, uint32_t log_len,
                       uint32_t direction, uint32_t coset, cuzk_message message);

// The first step of the quotient polynomial, which needs A alone: from evaluations in
// natural order to evaluations on the coset in bit-reversed order.
int32_t cuzk_quotient_left(cuzk_device* device, void* d_a, uint32_t log_len,
                           cuzk_message message);
// The second: A as the first step left it, evaluations of B and C in natural order in,
// or if not `c_given` those of A in place of C; coefficients of h out in `d_a`. `d_b`
// and `d_c` are scratch afterwards. `transforms` is 6 or 7; `vanishing_inverse` is 1 / Z
// on the coset.
int32_t cuzk_quotient(cuzk_device* device, void* d_a, void* d_b, void* d_c,
                      uint32_t log_len, uint32_t c_given, uint32_t transforms,
                      const cuzk_scalar* vanishing_inverse, cuzk_message message);

// Sorts the scalars of a query into zeros, ones and the rest. The scalar of entry
// j is d_scalars[d_index[j]], or d_scalars[j] where d_index is null. `d_ones` and
// `d_rest` receive entries, `d_counts` their numbers and then the number of values
// that are no reduced scalars: three words, set to zero first. Entries are not in
// order.
int32_t cuzk_split(cuzk_device* device, const void* d_scalars, size_t scalars_len,
                   const uint32_t* d_index, size_t count, uint32_t* d_ones,
                   uint32_t* d_rest, uint32_t* d_counts, cuzk_message message);

// d_out[k] = the scalar of entry d_entries[k] (entry k where d_entries is null), for
// k < count; entries are below `index_len`, or below `scalars_len` where d_index is null.
int32_t cuzk_gather_scalars(cuzk_device* device, const void* d_scalars, size_t scalars_len,
                            const uint32_t* d_index, size_t index_len,
                            const uint32_t* d_entries, size_t entries_len, size_t count,
                            void* d_out, size_t out_len, cuzk_message message);

// d_out[k] = d_points[d_entries[k]] for k < count; points of point_bytes (96 or 192)
// each, entries below `points_len`.
int32_t cuzk_gather_points(cuzk_device* device, const void* d_points, size_t points_len,
                           size_t point_bytes, const uint32_t* d_entries,
                           size_t entries_len, size_t count, void* d_out, size_t out_len,
                           cuzk_message message);

// Decodes points of a key file (big-endian coordinates, second half of a G2
// coordinate first) to memory form. `d_fault` receives the least value of
// index * 4 + fault over wrong points (1: encoding, 2: not on the curve,
// 3: infinity) if it is less than what it holds.
int32_t cuzk_decode_g1(cuzk_device* device, void* stream, const void* d_bytes,
                       size_t count, uint64_t first_index, void* d_points,
                       uint64_t* d_fault, cuzk_message message);
int32_t cuzk_decode_g2(cuzk_device* device, void* stream, const void* d_bytes,
                       size_t count, uint64_t first_index, void* d_points,
                       uint64_t* d_fault, cuzk_message message);

// Multiplies and sums, Pippenger's way: `chunk` entries at a time with windows of
// `window_bits`. `d_rows` receives, chunk by chunk, one point a window, in
// coordinates X, Y, ZZZ, ZZ. Bytes of `d_work` needed: `Cut::work_bytes` in
// src/cuda/plan.rs.
int32_t cuzk_msm_g1(cuzk_device* device, const void* d_points,
                    const void* d_scalars, size_t count, size_t chunk,
                    uint32_t window_bits, void* d_work, size_t work_len,
                    void* d_rows, size_t rows_len, cuzk_message message);
int32_t cuzk_msm_g2(cuzk_device* device, const void* d_points,
                    const void* d_scalars, size_t count, size_t chunk,
                    uint32_t window_bits, void* d_work, size_t work_len,
                    void* d_rows, size_t rows_len, cuzk_message message);

// Sums the points named by `d_entries`, a list with room for `entries_len` entries, each
// below that and so below `points_len`; their number is read from `d_count`, one word on
// the device. `d_row` receives one point in coordinates X, Y, ZZZ, ZZ.
int32_t cuzk_sum_g1(cuzk_device* device, const void* d_points, size_t points_len,
                    const uint32_t* d_entries, size_t entries_len,
                    const uint32_t* d_count, void* d_work, size_t work_len,
                    void* d_row, size_t row_len, cuzk_message message);
int32_t cuzk_sum_g2(cuzk_device* device, const void* d_points, size_t points_len,
                    const uint32_t* d_entries, size_t entries_len,
                    const uint32_t* d_count, void* d_work, size_t work_len,
                    void* d_row, size_t row_len, cuzk_message message);

// Multiples of one point: d_points[i] = scalars[i] times the base of the table, which
// holds for each window of `window_bits` the multiples 0, 1, 2, ... of the shifted
// base. Bytes of `d_work` needed: five coordinates a scalar.
int32_t cuzk_multiples_g1(cuzk_device* device, const void* d_table, size_t table_len,
                          uint32_t window_bits, const void* d_scalars, size_t count,
                          void* d_work, size_t work_len, void* d_points,
                          size_t points_len, cuzk_message message);
int32_t cuzk_multiples_g2(cuzk_device* device, const void* d_table, size_t table_len,
                          uint32_t window_bits, const void* d_scalars, size_t count,
                          void* d_work, size_t work_len, void* d_points,
                          size_t points_len, cuzk_message message);

}  // extern "C"
