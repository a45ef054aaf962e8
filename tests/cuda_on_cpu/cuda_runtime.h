// A stand-in for the part of CUDA that kernels.cu uses: a graphics card made of one processor core,
// so that the file can be compiled by any C++ compiler and tested where there is no card. It is
// slow, and it is strict. Each thread of a block really runs, as a fiber with a stack of its own;
// see card.hpp for what it complains about.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "card.hpp"

// ---- The language -------------------------------------------------------------------------------

#define __global__ inline
#define __device__
#define __host__
#define __grid_constant__
#define __shared__ static  // blocks run one after the other

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;  // of the fiber that runs

#define __syncthreads() card::wait_for_block(__FILE__, __LINE__)

template <class T>
T card_shuffle(T value, unsigned from, const char* file, int line) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = card::shuffle(bits, from, file, line);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// All threads of a warp take part, whatever the mask.
#define __shfl_sync(mask, value, lane) \
  card_shuffle(value, static_cast<unsigned>(lane), __FILE__, __LINE__)
#define __shfl_down_sync(mask, value, by) \
  card_shuffle(value, threadIdx.x % 32 + static_cast<unsigned>(by), __FILE__, __LINE__)

inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  if (value < before) *at = value;
  return before;
}

// ---- The library --------------------------------------------------------------------------------

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration,
  cudaErrorNoDevice,
  cudaErrorInvalidDevice,
  cudaErrorLaunchFailure
};
using cudaStream_t = struct cudaStream*;
using cudaMemPool_t = struct cudaMemPool*;
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported };
enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold,
  cudaMemPoolAttrUsedMemCurrent,
  cudaMemPoolAttrUsedMemHigh,
  cudaMemPoolAttrReservedMemCurrent
};
using cudaEvent_t = struct cudaEvent*;
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  int major, minor, multiProcessorCount;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
const char* cudaGetErrorName(cudaError_t);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFree(void* data);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyPeer(void* to, int to_card, const void* from, int from_card,
                           std::size_t bytes);

// The parameters are copied, as CUDA does it.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t, cudaStream_t) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    const std::tuple<std::decay_t<Parameters>...> copies(
        *static_cast<std::decay_t<Parameters>*>(arguments[i])...);
    const auto thread = [&] { std::apply(kernel, copies); };
    return static_cast<cudaError_t>(
        card::run({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, thread));
  }
  (std::index_sequence_for<Parameters...>());
}
