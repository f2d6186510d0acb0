// sppark's `msm_t` and transforms as they come, with everything resident.

#define DIGIT_BITS 13

#include <ff/bls12-381-fp2.hpp>
#include <ec/jacobian_t.hpp>
#include <ec/xyzz_t.hpp>

#define SPPARK_DONT_INSTANTIATE_TEMPLATES
#include <msm/pippenger.cuh>
#include <ntt/ntt.cuh>

#include <chrono>
#include <cstdio>
#include <memory>

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

template <class F>
int guarded(F&& body) {
    try {
        body();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
    } catch (...) {
        std::fprintf(stderr, "an exception of an unknown type\n");
    }
    return 1;
}

struct Query {
    virtual ~Query() = default;
    virtual double run(void* sum) = 0;
};

template <class field_t>
struct QueryOf : Query {
    using bucket_t = xyzz_t<field_t>;
    using point_t = jacobian_t<field_t>;
    using affine_t = typename bucket_t::affine_t;

    msm_t<bucket_t, point_t, affine_t, fr_t> msm;
    dev_ptr_t<fr_t> scalars;
    size_t count;

    QueryOf(const void* from_points, const void* from_scalars, size_t count)
        // The window is chosen from the number of points that it is made with; without
        // points it would be 17 bits whatever the number.
        : msm(static_cast<const affine_t*>(from_points), count), scalars(count), count(count) {
        CUDA_OK(cudaMemcpy(scalars.data(), from_scalars, count * sizeof(fr_t),
                           cudaMemcpyHostToDevice));
    }

    double run(void* sum) override {
        CUDA_OK(cudaDeviceSynchronize());
        const auto begin = Clock::now();
        point_t out;
        const RustError error = msm.invoke(out, static_cast<const affine_t*>(nullptr), count,
                                           scalars);
        if (error.code != 0) {
            throw cuda_error(error.code, "msm");
        }
        const double took = since(begin);
        *static_cast<point_t*>(sum) = out;
        return took;
    }
};

}  // namespace

extern "C" int peer_load(int is_g2, const void* points, const void* scalars, size_t count,
                         void** query) {
    return guarded([&] {
        if (is_g2) {
            *query = static_cast<Query*>(new QueryOf<fp2_t>(points, scalars, count));
        } else {
            *query = static_cast<Query*>(new QueryOf<fp_t>(points, scalars, count));
        }
    });
}

// The sum in Jacobian coordinates, and how long it took.
extern "C" int peer_sum(void* query, void* sum, double* ms) {
    return guarded([&] { *ms = static_cast<Query*>(query)->run(sum); });
}

// The six transforms of a quotient polynomial, without what comes between them.
extern "C" int peer_transforms(uint32_t log_len, double* ms) {
    return guarded([&] {
        const gpu_t& gpu = select_gpu(0);
        static std::unique_ptr<dev_ptr_t<fr_t>> columns[3];
        for (auto& column : columns) {
            if (!column) {
                column = std::make_unique<dev_ptr_t<fr_t>>(size_t(1) << log_len);
                CUDA_OK(cudaMemset(column->data(), 1, sizeof(fr_t) << log_len));
            }
        }
        stream_t& stream = gpu[0];
        CUDA_OK(cudaDeviceSynchronize());
        const auto begin = Clock::now();
        using Order = NTT::InputOutputOrder;
        using Direction = NTT::Direction;
        using Type = NTT::Type;
        for (auto& column : columns) {
            NTT::Base_dev_ptr(stream, column->data(), log_len, Order::NR, Direction::inverse,
                              Type::standard);
        }
        for (int at = 0; at < 2; at++) {
            NTT::Base_dev_ptr(stream, columns[at]->data(), log_len, Order::RN,
                              Direction::forward, Type::coset);
        }
        NTT::Base_dev_ptr(stream, columns[0]->data(), log_len, Order::NR, Direction::inverse,
                          Type::coset);
        CUDA_OK(cudaDeviceSynchronize());
        *ms = since(begin);
    });
}
