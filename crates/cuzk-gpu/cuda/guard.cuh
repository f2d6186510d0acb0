// Turns everything that can be thrown into a status.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>

#include <util/exception.cuh>

#include "status.h"

inline cuzk_status cuzk_failed(int32_t code, const char* message) noexcept {
    cuzk_status status{};
    status.code = code;
    size_t len = std::min(std::strlen(message), sizeof(status.message));
    // A character is not cut in the middle.
    while (len > 0 && len < std::strlen(message) && (message[len] & 0xc0) == 0x80) len--;
    status.message_len = static_cast<uint32_t>(len);
    std::memcpy(status.message, message, len);
    return status;
}

// Calls `body`. The codes that sppark throws are those of the runtime, negated.
template<typename Body>
cuzk_status cuzk_guarded(Body body) noexcept {
    try {
        body();
        return cuzk_status{};
    } catch (const cuda_error& error) {
        const int code = error.code() < 0 ? -error.code() : error.code();
        return cuzk_failed(code != 0 ? code : CUZK_EXCEPTION, error.what());
    } catch (const std::exception& error) {
        return cuzk_failed(CUZK_EXCEPTION, error.what());
    } catch (...) {
        return cuzk_failed(CUZK_EXCEPTION, "an exception that is no std::exception");
    }
}
