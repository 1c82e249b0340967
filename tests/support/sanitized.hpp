// SPDX-License-Identifier: Apache-2.0
// Whether a program was built with AddressSanitizer or ThreadSanitizer, for what would take minutes there.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define RESHARD_TEST_SANITIZED 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RESHARD_TEST_SANITIZED 1
#endif
#endif

namespace testing {

#ifdef RESHARD_TEST_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace testing
