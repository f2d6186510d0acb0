// The list of devices that sppark's headers ask for, under names of ours (the build
// script renames them). sppark's own list is made once: a call of the runtime that
// fails then leaves it empty, or without a device, for the life of the process. This
// one is made by the first call that succeeds.

#include <memory>
#include <mutex>
#include <vector>

#include "border.cuh"

namespace {

using Devices = std::vector<const gpu_t*>;

Devices find_devices() {
    int count = 0;
    cuzk::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<std::unique_ptr<const gpu_t>> found;
    for (int ordinal = 0; ordinal < count; ordinal++) {
        cudaDeviceProp properties;
        cuzk::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
        if (properties.major >= 7 && properties.cooperativeLaunch) {
            cuzk::check(cudaSetDevice(ordinal), "cudaSetDevice");
            found.push_back(std::make_unique<const gpu_t>(static_cast<int>(found.size()), ordinal,
                                                          properties));
        }
    }
    // They live as long as the process: tables and streams of the library refer to them.
    Devices devices;
    devices.reserve(found.size());
    for (auto& device : found) {
        devices.push_back(device.release());
    }
    return devices;
}

}  // namespace

const std::vector<const gpu_t*>& all_gpus() {
    static std::mutex lock;
    static Devices devices;
    const std::lock_guard<std::mutex> guard(lock);
    if (devices.empty()) {
        devices = find_devices();
    }
    return devices;
}

const gpu_t& select_gpu(int id) {
    const gpu_t& gpu = *all_gpus().at(static_cast<size_t>(id));
    cuzk::check(cudaSetDevice(gpu.cid()), "cudaSetDevice");
    return gpu;
}

const cudaDeviceProp& gpu_props(int id) {
    return all_gpus().at(static_cast<size_t>(id))->props();
}

size_t ngpus() {
    return all_gpus().size();
}
