// SPDX-License-Identifier: Apache-2.0
// A callable behind one reference, at both times: an algorithm that takes a sink is compiled once, whoever calls it.
// Builds on: nothing of the library.
#pragma once

namespace reshard::detail {

template <typename Do, typename... Args>
class sink_of;

/// Takes some arguments, as the callable that it was made of does:
///   const auto add = sink<int>::of([&](int i) { sum += i; });
template <typename... Args>
class sink {
 public:
  /// A named callable is referred to, any other is kept.
  template <typename Do>
  [[nodiscard]] static constexpr sink_of<Do, Args...> of(Do&& callable) {
    return sink_of<Do, Args...>(static_cast<Do&&>(callable));
  }

  constexpr virtual void operator()(Args... args) const = 0;

 protected:
  constexpr ~sink() = default;
};

/// The sink that a callable is, or one that `Do` refers to.
template <typename Do, typename... Args>
class sink_of final : public sink<Args...> {
 public:
  constexpr explicit sink_of(Do&& callable) : do_(static_cast<Do&&>(callable)) {}

  constexpr void operator()(Args... args) const override { do_(args...); }

 private:
  Do do_;
};

}  // namespace reshard::detail
