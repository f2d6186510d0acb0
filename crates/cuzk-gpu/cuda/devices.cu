// The devices that sppark's headers ask for, under names of ours (the build script
// renames them). sppark's own list is made once and has every device of the machine, with
// a context, streams and tables on each; a call of the runtime that fails then leaves it
// empty, or without a device, for the life of the process. This one has the devices that
// were opened, numbered in the order of that, and a device that could not be opened can be
// opened again.

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "border.cuh"

namespace {

std::mutex opening;
std::mutex listing;
// They live as long as the process: tables and streams of the library refer to them.
std::vector<const gpu_t*> devices;

std::mutex counting;
// A bit for each counter that is held, by the device's ordinal.
std::map<int, uint64_t> held;
static_assert(cuzk::counter::MOST == 64, "a bit each");

const gpu_t* find(int32_t ordinal) {
    const std::lock_guard<std::mutex> guard(listing);
    for (const gpu_t* gpu : devices) {
        if (gpu->cid() == ordinal) {
            return gpu;
        }
    }
    return nullptr;
}

}  // namespace

cuzk::counter::counter(int ordinal) : ordinal(ordinal), number(0) {
    const std::lock_guard<std::mutex> guard(counting);
    uint64_t& bits = held[ordinal];
    while (number < MOST && (bits >> number & 1) != 0) {
        number++;
    }
    require(number < MOST, "64 users of this device in one process");
    bits |= uint64_t(1) << number;
}

cuzk::counter::~counter() {
    const std::lock_guard<std::mutex> guard(counting);
    held[ordinal] &= ~(uint64_t(1) << number);
}

const gpu_t& cuzk::opened(int32_t ordinal, void (*prepare)(size_t id, size_t most)) {
    // One at a time: `prepare` numbers what it makes as this list does.
    const std::lock_guard<std::mutex> one(opening);
    if (const gpu_t* known = find(ordinal)) {
        return *known;
    }
    int count = 0;
    cuzk::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    const char* none = "no usable device has this ordinal";
    cuzk::require(ordinal >= 0 && ordinal < count, none);
    cudaDeviceProp properties;
    cuzk::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    cuzk::require(properties.major >= 7 && properties.cooperativeLaunch, none);
    cuzk::check(cudaSetDevice(ordinal), "cudaSetDevice");
    auto gpu = std::make_unique<const gpu_t>(static_cast<int>(ngpus()), ordinal, properties);
    {
        const std::lock_guard<std::mutex> guard(listing);
        devices.push_back(gpu.get());
    }
    try {
        prepare(static_cast<size_t>(gpu->id()), static_cast<size_t>(count));
    } catch (...) {
        const std::lock_guard<std::mutex> guard(listing);
        devices.pop_back();
        throw;
    }
    return *gpu.release();
}

const gpu_t& select_gpu(int id) {
    const gpu_t* gpu;
    {
        const std::lock_guard<std::mutex> guard(listing);
        gpu = devices.at(static_cast<size_t>(id));
    }
    cuzk::check(cudaSetDevice(gpu->cid()), "cudaSetDevice");
    return *gpu;
}

const cudaDeviceProp& gpu_props(int id) {
    const std::lock_guard<std::mutex> guard(listing);
    return devices.at(static_cast<size_t>(id))->props();
}

size_t ngpus() {
    const std::lock_guard<std::mutex> guard(listing);
    return devices.size();
}
