// Calls of the runtime and of the driver that fail on demand, linked into the
// integration tests alone. The linker sends each call of the runtime in the archive to
// the `__wrap_` function of its name (build/faults.rs lists them), and each look-up of a
// function of the driver to `__wrap_dlsym`, which gives one of the functions below. What
// is not told to fail is passed on. One counter runs over all calls.
//
// A call that is told to fail:
//   queues    is not made: copies, fills, launches, allocations, questions;
//   waits     is made first: nothing runs on after a wait that failed in earnest, and
//             code may rely on that;
//   releases  is made first too, so that the tests do not leak what they free, and never
//             throws: destructors call it;
//   polls     waits first, as above; it is not counted with the others, since how often
//             a fence is asked depends on the time.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>

#include <cuda.h>
#include <cuda_runtime.h>

#include <util/exception.cuh>

namespace {

enum class Class { queues, waits, releases, polls };

// What happens at the call that was named, and after it.
enum Kind : uint32_t {
    UNKNOWN = 0,        // error 999, once
    OUT_OF_MEMORY = 1,  // error 2, once
    STICKY = 2,         // error 719 from this call on
    POLL = 3,           // error 999 from one question whether something has passed
    THROW_STD = 4,      // calls of the runtime alone, from here on
    THROW_CUDA = 5,
    THROW_BAD_ALLOC = 6,
    THROW_INT = 7,
    KINDS = 8,
};

std::atomic<bool> is_armed{false};
std::atomic<uint32_t> kind{UNKNOWN};
std::atomic<uint64_t> fail_at{0};
std::atomic<uint64_t> calls{0};
std::atomic<uint64_t> polls{0};
std::atomic<bool> has_failed{false};
// Name of the call that failed first; a literal.
std::atomic<const char*> failed_name{nullptr};
// Functions of the driver that were looked up and that nothing here can fail.
std::atomic<uint64_t> unknown_count{0};
char unknown_name[64];

// Calls of the runtime that this thread is inside of. What the runtime looks up of the
// driver for itself it gets as it is: only calls of ours are counted.
thread_local int runtime_depth = 0;

struct Inside {
    Inside() { runtime_depth++; }
    ~Inside() { runtime_depth--; }
};

// What the runtime keeps for cudaGetLastError, for errors that are not its own.
thread_local cudaError_t last_error = cudaSuccess;

int code() {
    switch (kind.load()) {
        case OUT_OF_MEMORY: return 2;
        case STICKY: return 719;
        default: return 999;
    }
}

// Whether this call is the one to fail.
bool is_hit(const char* name, std::atomic<uint64_t>& counter) {
    const uint64_t number = counter.fetch_add(1) + 1;
    if (fail_at.load() == 0 || number != fail_at.load()) {
        return false;
    }
    failed_name = name;
    has_failed = true;
    return true;
}

// The error of a call, or zero if it is to be made.
int error_of(Class what, const char* name) {
    if (!is_armed.load() || kind.load() >= THROW_STD) {
        return 0;
    }
    if (kind.load() == STICKY && has_failed.load()) {
        return code();
    }
    if (kind.load() == POLL) {
        return what == Class::polls && is_hit(name, polls) ? code() : 0;
    }
    return what != Class::polls && is_hit(name, calls) ? code() : 0;
}

void maybe_throw(Class what, const char* name) {
    if (!is_armed.load() || kind.load() < THROW_STD || what == Class::releases ||
        !is_hit(name, calls)) {
        return;
    }
    switch (kind.load()) {
        case THROW_STD: throw std::runtime_error("a made-up exception");
        case THROW_CUDA: throw cuda_error{-700, "a made-up error of the library"};
        case THROW_BAD_ALLOC: throw std::bad_alloc();
        default: throw 42;
    }
}

template <class Real>
cudaError_t runtime(Class what, const char* name, Real real) {
    maybe_throw(what, name);
    const int error = error_of(what, name);
    const Inside inside;
    if (error == 0) {
        return real();
    }
    if (what != Class::queues) {
        (void)real();
    }
    last_error = static_cast<cudaError_t>(error);
    return last_error;
}

template <class Real>
CUresult driver(Class what, const char* name, Real real) {
    const int error = error_of(what, name);
    if (error == 0) {
        return real();
    }
    if (what == Class::polls) {
        while (real() == CUDA_ERROR_NOT_READY) {
        }
    } else if (what != Class::queues) {
        (void)real();
    }
    return static_cast<CUresult>(error);
}

}  // namespace

#define RUNTIME(what, name, parameters, arguments)                                       \
    extern "C" cudaError_t __real_##name parameters;                                     \
    extern "C" cudaError_t __wrap_##name parameters {                                    \
        return runtime(Class::what, #name, [&] { return __real_##name arguments; });     \
    }

RUNTIME(waits, __cudaPopCallConfiguration,
        (dim3* grid, dim3* block, size_t* shared, void* stream), (grid, block, shared, stream))
RUNTIME(waits, cudaDeviceSynchronize, (void), ())
RUNTIME(releases, cudaFreeAsync, (void* memory, cudaStream_t stream), (memory, stream))
RUNTIME(queues, cudaFuncGetAttributes, (cudaFuncAttributes* attributes, const void* function),
        (attributes, function))
RUNTIME(queues, cudaFuncSetAttribute, (const void* function, cudaFuncAttribute name, int value),
        (function, name, value))
RUNTIME(queues, cudaGetDevice, (int* device), (device))
RUNTIME(queues, cudaGetDeviceCount, (int* count), (count))
RUNTIME(queues, cudaGetDeviceProperties, (cudaDeviceProp* properties, int device),
        (properties, device))
RUNTIME(queues, cudaLaunchCooperativeKernel,
        (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
         cudaStream_t stream),
        (function, grid, block, arguments, shared, stream))
RUNTIME(queues, cudaLaunchKernel,
        (const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
         cudaStream_t stream),
        (function, grid, block, arguments, shared, stream))
RUNTIME(queues, cudaMallocAsync, (void** memory, size_t bytes, cudaStream_t stream),
        (memory, bytes, stream))
RUNTIME(queues, cudaMemGetInfo, (size_t* free, size_t* total), (free, total))
RUNTIME(queues, cudaMemsetAsync, (void* memory, int value, size_t bytes, cudaStream_t stream),
        (memory, value, bytes, stream))
RUNTIME(queues, cudaSetDevice, (int device), (device))
RUNTIME(queues, cudaStreamCreateWithFlags, (cudaStream_t* stream, unsigned int flags),
        (stream, flags))
RUNTIME(releases, cudaStreamDestroy, (cudaStream_t stream), (stream))
RUNTIME(waits, cudaStreamSynchronize, (cudaStream_t stream), (stream))

// Not zero means no launch; its error is the last one.
extern "C" unsigned __real___cudaPushCallConfiguration(dim3, dim3, size_t, CUstream_st*);
extern "C" unsigned __wrap___cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                       CUstream_st* stream) {
    unsigned answer = 1;
    (void)runtime(Class::queues, "__cudaPushCallConfiguration", [&] {
        answer = __real___cudaPushCallConfiguration(grid, block, shared, stream);
        return cudaSuccess;
    });
    return answer;
}

// Gives the error of a call that was made to fail once, as the runtime does. It is no
// call that fails by itself, and is counted where exceptions are: they may come from
// any.
extern "C" cudaError_t __real_cudaGetLastError(void);
extern "C" cudaError_t __wrap_cudaGetLastError(void) {
    maybe_throw(Class::queues, "cudaGetLastError");
    const cudaError_t made_up = last_error;
    last_error = cudaSuccess;
    const Inside inside;
    const cudaError_t real = __real_cudaGetLastError();
    if (is_armed.load() && kind.load() == STICKY && has_failed.load()) {
        return static_cast<cudaError_t>(code());
    }
    return made_up == cudaSuccess ? real : made_up;
}

#define DRIVER(what, name, parameters, arguments)                                        \
    static std::atomic<CUresult(*) parameters> real_##name{nullptr};                     \
    static CUresult shim_##name parameters {                                             \
        return driver(Class::what, #name, [&] { return real_##name.load() arguments; }); \
    }

DRIVER(queues, cuInit, (unsigned flags), (flags))
DRIVER(queues, cuDriverGetVersion, (int* version), (version))
DRIVER(queues, cuDeviceGetCount, (int* count), (count))
DRIVER(queues, cuDeviceGet, (CUdevice* device, int ordinal), (device, ordinal))
DRIVER(queues, cuDeviceGetName, (char* name, int len, CUdevice device), (name, len, device))
DRIVER(queues, cuDeviceGetAttribute, (int* value, CUdevice_attribute name, CUdevice device),
       (value, name, device))
DRIVER(queues, cuDevicePrimaryCtxRetain, (CUcontext* context, CUdevice device),
       (context, device))
DRIVER(releases, cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
DRIVER(queues, cuCtxGetCurrent, (CUcontext* context), (context))
DRIVER(queues, cuCtxSetCurrent, (CUcontext context), (context))
DRIVER(queues, cuMemGetInfo_v2, (size_t* free, size_t* total), (free, total))
DRIVER(queues, cuMemAlloc_v2, (CUdeviceptr* memory, size_t bytes), (memory, bytes))
DRIVER(releases, cuMemFree_v2, (CUdeviceptr memory), (memory))
DRIVER(queues, cuMemHostAlloc, (void** memory, size_t bytes, unsigned flags),
       (memory, bytes, flags))
DRIVER(releases, cuMemFreeHost, (void* memory), (memory))
DRIVER(queues, cuMemHostRegister_v2, (void* memory, size_t bytes, unsigned flags),
       (memory, bytes, flags))
DRIVER(releases, cuMemHostUnregister, (void* memory), (memory))
DRIVER(queues, cuMemcpyHtoDAsync_v2,
       (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
       (to, from, bytes, stream))
DRIVER(queues, cuMemcpyDtoHAsync_v2,
       (void* to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))
DRIVER(queues, cuMemcpyDtoDAsync_v2,
       (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
       (to, from, bytes, stream))
DRIVER(queues, cuMemsetD8Async,
       (CUdeviceptr memory, unsigned char value, size_t count, CUstream stream),
       (memory, value, count, stream))
DRIVER(queues, cuMemsetD8_v2, (CUdeviceptr memory, unsigned char value, size_t count),
       (memory, value, count))
DRIVER(queues, cuStreamCreate, (CUstream* stream, unsigned flags), (stream, flags))
DRIVER(queues, cuStreamCreateWithPriority, (CUstream* stream, unsigned flags, int priority),
       (stream, flags, priority))
DRIVER(releases, cuStreamDestroy_v2, (CUstream stream), (stream))
DRIVER(waits, cuStreamSynchronize, (CUstream stream), (stream))
DRIVER(polls, cuStreamQuery, (CUstream stream), (stream))
DRIVER(queues, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags),
       (stream, event, flags))
DRIVER(waits, cuCtxSynchronize, (void), ())
DRIVER(queues, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data),
       (stream, function, data))
DRIVER(queues, cuEventCreate, (CUevent* event, unsigned flags), (event, flags))
DRIVER(releases, cuEventDestroy_v2, (CUevent event), (event))
DRIVER(queues, cuEventRecord, (CUevent event, CUstream stream), (event, stream))
DRIVER(waits, cuEventSynchronize, (CUevent event), (event))
DRIVER(polls, cuEventQuery, (CUevent event), (event))
DRIVER(queues, cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to),
       (milliseconds, from, to))
DRIVER(queues, cuEventElapsedTime_v2, (float* milliseconds, CUevent from, CUevent to),
       (milliseconds, from, to))

#define LOOKED_UP(name)                                                                  \
    if (std::strcmp(wanted, #name) == 0) {                                               \
        real_##name = reinterpret_cast<decltype(real_##name.load())>(found);             \
        return reinterpret_cast<void*>(&shim_##name);                                    \
    }

static void* shim_of(const char* wanted, void* found) {
    LOOKED_UP(cuInit)
    LOOKED_UP(cuDriverGetVersion)
    LOOKED_UP(cuDeviceGetCount)
    LOOKED_UP(cuDeviceGet)
    LOOKED_UP(cuDeviceGetName)
    LOOKED_UP(cuDeviceGetAttribute)
    LOOKED_UP(cuDevicePrimaryCtxRetain)
    LOOKED_UP(cuDevicePrimaryCtxRelease_v2)
    LOOKED_UP(cuCtxGetCurrent)
    LOOKED_UP(cuCtxSetCurrent)
    LOOKED_UP(cuMemGetInfo_v2)
    LOOKED_UP(cuMemAlloc_v2)
    LOOKED_UP(cuMemFree_v2)
    LOOKED_UP(cuMemHostAlloc)
    LOOKED_UP(cuMemFreeHost)
    LOOKED_UP(cuMemHostRegister_v2)
    LOOKED_UP(cuMemHostUnregister)
    LOOKED_UP(cuMemcpyHtoDAsync_v2)
    LOOKED_UP(cuMemcpyDtoHAsync_v2)
    LOOKED_UP(cuMemcpyDtoDAsync_v2)
    LOOKED_UP(cuMemsetD8Async)
    LOOKED_UP(cuMemsetD8_v2)
    LOOKED_UP(cuStreamCreate)
    LOOKED_UP(cuStreamCreateWithPriority)
    LOOKED_UP(cuStreamDestroy_v2)
    LOOKED_UP(cuStreamSynchronize)
    LOOKED_UP(cuStreamQuery)
    LOOKED_UP(cuStreamWaitEvent)
    LOOKED_UP(cuCtxSynchronize)
    LOOKED_UP(cuLaunchHostFunc)
    LOOKED_UP(cuEventCreate)
    LOOKED_UP(cuEventDestroy_v2)
    LOOKED_UP(cuEventRecord)
    LOOKED_UP(cuEventSynchronize)
    LOOKED_UP(cuEventQuery)
    LOOKED_UP(cuEventElapsedTime)
    LOOKED_UP(cuEventElapsedTime_v2)
    return nullptr;
}

// Words for errors, which have none of their own.
static bool is_left_alone(const char* name) {
    return std::strcmp(name, "cuGetErrorName") == 0 ||
           std::strcmp(name, "cuGetErrorString") == 0;
}

extern "C" void* __real_dlsym(void* library, const char* name);
extern "C" void* __wrap_dlsym(void* library, const char* name) {
    void* found = __real_dlsym(library, name);
    if (found == nullptr || name == nullptr || runtime_depth != 0 || std::strncmp(name, "cu", 2) != 0 ||
        name[2] < 'A' || name[2] > 'Z') {
        return found;
    }
    if (void* shim = shim_of(name, found)) {
        return shim;
    }
    if (!is_left_alone(name) && unknown_count.fetch_add(1) == 0) {
        std::strncpy(unknown_name, name, sizeof(unknown_name) - 1);
    }
    return found;
}

// From here on call number `at`, counted from one, fails; none where `at` is zero.
extern "C" void cuzk_faults_arm(uint64_t at, uint32_t how) {
    is_armed = false;
    kind = how < KINDS ? how : static_cast<uint32_t>(UNKNOWN);
    fail_at = at;
    calls = 0;
    polls = 0;
    has_failed = false;
    failed_name = nullptr;
    is_armed = true;
}

// Ends that. Gives the number of calls and the name of the one that failed, or null.
extern "C" const char* cuzk_faults_disarm(uint64_t* count) {
    is_armed = false;
    last_error = cudaSuccess;
    *count = kind.load() == POLL ? polls.load() : calls.load();
    return failed_name.load();
}

// The first function of the driver that was looked up and that nothing here can fail;
// null if there was none.
extern "C" const char* cuzk_faults_unknown() {
    return unknown_count.load() == 0 ? nullptr : unknown_name;
}
