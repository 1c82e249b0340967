// SPDX-License-Identifier: Apache-2.0
// The kernel under all products: six rows of sixteen columns, k ascending, each step one fused multiplication and
// addition where the machine has it.
#include "numbers.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {

namespace {

template <typename Real>
void multiply_plainly(index_t k, const Real* a, const Real* b, Real* c) {
  for (index_t i = 0; i < tile_rows * tile_columns; ++i) c[i] = 0;
  for (index_t x = 0; x < k; ++x)
    for (index_t i = 0; i < tile_rows; ++i)
      for (index_t j = 0; j < tile_columns; ++j)
        c[i * tile_columns + j] += a[x * tile_rows + i] * b[x * tile_columns + j];
}

#if defined(__x86_64__)
struct tile_row {
  __m256 left, right;
};

__attribute__((target("avx2,fma"))) void multiply_fused(index_t k, const float* a, const float* b, float* c) {
  tile_row r0{}, r1{}, r2{}, r3{}, r4{}, r5{};
  for (index_t x = 0; x < k; ++x, a += tile_rows, b += tile_columns) {
    const __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + 8);
    __m256 one = _mm256_broadcast_ss(a);
    r0 = {_mm256_fmadd_ps(one, left, r0.left), _mm256_fmadd_ps(one, right, r0.right)};
    one = _mm256_broadcast_ss(a + 1);
    r1 = {_mm256_fmadd_ps(one, left, r1.left), _mm256_fmadd_ps(one, right, r1.right)};
    one = _mm256_broadcast_ss(a + 2);
    r2 = {_mm256_fmadd_ps(one, left, r2.left), _mm256_fmadd_ps(one, right, r2.right)};
    one = _mm256_broadcast_ss(a + 3);
    r3 = {_mm256_fmadd_ps(one, left, r3.left), _mm256_fmadd_ps(one, right, r3.right)};
    one = _mm256_broadcast_ss(a + 4);
    r4 = {_mm256_fmadd_ps(one, left, r4.left), _mm256_fmadd_ps(one, right, r4.right)};
    one = _mm256_broadcast_ss(a + 5);
    r5 = {_mm256_fmadd_ps(one, left, r5.left), _mm256_fmadd_ps(one, right, r5.right)};
  }
  for (const tile_row* r : {&r0, &r1, &r2, &r3, &r4, &r5}) {
    _mm256_storeu_ps(c, r->left);
    _mm256_storeu_ps(c + 8, r->right);
    c += tile_columns;
  }
}
#endif

}  // namespace

void multiply_tile(index_t k, const float* a, const float* b, float* c) {
#if defined(__x86_64__)
  static const bool fused = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  if (fused) return multiply_fused(k, a, b, c);
#endif
  multiply_plainly(k, a, b, c);
}
void multiply_tile(index_t k, const double* a, const double* b, double* c) { multiply_plainly(k, a, b, c); }

}  // namespace trainer
