// What every function across the border returns: a code and the words for it.
// Nothing is thrown, and nothing that one side allocates is freed by the other.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct cuzk_status {
    int32_t code;          // 0 is success; the runtime's error codes; below 0 ours
    uint32_t message_len;  // bytes of `message` that count
    char message[248];     // UTF-8, cut to fit
};

}

static_assert(sizeof(cuzk_status) == 256, "Rust asserts the same layout");
static_assert(offsetof(cuzk_status, message) == 8, "Rust asserts the same layout");

constexpr int32_t CUZK_EXCEPTION = -1;  // anything thrown that carries no code
constexpr int32_t CUZK_ARGUMENT = -2;   // an argument that the caller's checks should have met
