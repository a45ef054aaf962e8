// A stand-in for the part of cuBLAS that kernels.cu uses. Like cuBLAS it thinks in columns and
// checks its leading dimensions.
#pragma once

#include <algorithm>

#include "cuda_runtime.h"

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_INVALID_VALUE };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH };
using cublasHandle_t = int*;

inline const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new int(0);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  return mode == CUBLAS_DEFAULT_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

template <class T>
cublasStatus_t gemm(cublasOperation_t on_a, cublasOperation_t on_b, int m, int n, int k, T alpha,
                    const T* a, int lda, long long a_step, const T* b, int ldb, long long b_step,
                    T beta, T* c, int ldc, long long c_step, int count) {
  const bool a_plain = on_a == CUBLAS_OP_N, b_plain = on_b == CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || count < 0 || lda < std::max(1, a_plain ? m : k) ||
      ldb < std::max(1, b_plain ? k : n) || ldc < std::max(1, m))
    return CUBLAS_STATUS_INVALID_VALUE;
  const card::Open access;
  for (long long s = 0; s < count; ++s)
    for (long long j = 0; j < n; ++j)
      for (long long i = 0; i < m; ++i) {
        double sum = 0;
        for (long long l = 0; l < k; ++l)
          sum += static_cast<double>(a[s * a_step + (a_plain ? i + l * lda : l + i * lda)]) *
                 static_cast<double>(b[s * b_step + (b_plain ? l + j * ldb : j + l * ldb)]);
        T& y = c[s * c_step + i + j * ldc];
        y = static_cast<T>(static_cast<double>(alpha) * sum) + (beta == 0 ? T(0) : beta * y);
      }
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t on_a,
                                                cublasOperation_t on_b, int m, int n, int k,
                                                const float* alpha, const float* a, int lda,
                                                long long a_step, const float* b, int ldb,
                                                long long b_step, const float* beta, float* c,
                                                int ldc, long long c_step, int count) {
  return gemm(on_a, on_b, m, n, k, *alpha, a, lda, a_step, b, ldb, b_step, *beta, c, ldc, c_step,
              count);
}
inline cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t, cublasOperation_t on_a,
                                                cublasOperation_t on_b, int m, int n, int k,
                                                const double* alpha, const double* a, int lda,
                                                long long a_step, const double* b, int ldb,
                                                long long b_step, const double* beta, double* c,
                                                int ldc, long long c_step, int count) {
  return gemm(on_a, on_b, m, n, k, *alpha, a, lda, a_step, b, ldb, b_step, *beta, c, ldc, c_step,
              count);
}
