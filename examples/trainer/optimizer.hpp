// SPDX-License-Identifier: Apache-2.0
// AdamW with a clipped norm: a pure function of state, gradient, norm and step, element by element, so that a rank may
// make an update late, from the norm alone.
#pragma once

#include <cmath>
#include <numbers>

#include "state.hpp"

namespace trainer {

/// 3e-3 (s + 1) / 20 for s < 20, then 1.5e-3 (1 + cos(pi (s - 20) / (total - 20)))
inline double rate_at(index_t step, index_t total) {
  if (step < 20) return 3e-3 * static_cast<double>(step + 1) / 20;
  return 1.5e-3 * (1 + std::cos(std::numbers::pi * static_cast<double>(step - 20) / static_cast<double>(total - 20)));
}

struct adamw {
  float clip = 1, rate = 0, first = 1, second = 1;  // what gradients are multiplied by; 1 - beta^t

  /// The update that makes version `step` + 1; `behind` is of --damage alone.
  adamw(index_t step, index_t total, float norm, index_t behind = 0)
      : clip(norm > 1 ? 1 / (norm + 1e-6f) : 1), rate(static_cast<float>(rate_at(step, total))) {
    const auto t = static_cast<double>(step + 1 - behind);
    first = static_cast<float>(1 - std::pow(0.9, t));
    second = static_cast<float>(1 - std::pow(0.95, t));
  }

  /// m = 0.9 m + 0.1 g;  v = 0.95 v + 0.05 g^2;  w -= rate 0.1 w of a matrix, then
  /// w -= rate (m / first) / (sqrt(v / second) + 1e-8);  param = nearest_bf16(w)
  void update(const run& r, const float* gradient) const {
    for (index_t i = 0; i < r.count; ++i) {
      const float g = gradient[r.at + i] * clip;
      float w = r.master[i];
      const float m = 0.9f * r.exp_avg[i] + 0.1f * g, v = 0.95f * r.exp_avg_sq[i] + 0.05f * g * g;
      if (r.decays) w -= rate * 0.1f * w;
      w -= rate * (m / first) / (std::sqrt(v / second) + 1e-8f);
      r.exp_avg[i] = m, r.exp_avg_sq[i] = v, r.master[i] = w, r.param[i] = nearest_bf16(w);
    }
  }
};

}  // namespace trainer
