// Operators that a device has to implement itself: memory, views, copies, and reads by the host.
#include <cstring>

#include <ATen/InferSize.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "cpu_view.h"
#include "device_allocator.h"
#include "device_graphs.h"
#include "device_work.h"
#include "gantry/tensors/libtorch.h"
#include "kernel_fallback.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

c10::Device this_device(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device : c10::impl::getDeviceGuardImpl(kPretendType)->getDevice();
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  return new_device_tensor(this_device(device), sizes, strides, type.value_or(at::kFloat));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  at::Tensor made =
      new_device_tensor(this_device(device), sizes, c10::contiguous_strides(sizes), type.value_or(at::kFloat));
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve)
    made.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return made;
}

// --- Views ---

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return over_storage(self.storage(), self.dtype(), sizes, strides, offset.value_or(self.storage_offset()));
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  const at::DimVector inferred = at::infer_size_dv(sizes, self.numel());
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), inferred);
  TORCH_CHECK(strides, "view size ", sizes, " does not fit the strides of a tensor of shape ", self.sizes());
  return over_storage(self.storage(), self.dtype(), inferred, *strides, self.storage_offset());
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return over_storage(self.storage(), self.dtype(), sizes, strides, self.storage_offset());
}

// --- Storages ---

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  const std::size_t bytes = static_cast<std::size_t>(self.storage_offset() + elements) * self.itemsize();
  c10::StorageImpl& storage = *self.storage().unsafeGetStorageImpl();
  if (elements > 0 && bytes > storage.nbytes()) resize_storage(storage, bytes);
  self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, c10::contiguous_strides(sizes));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes, strides.empty() && !sizes.empty() ? at::IntArrayRef(c10::contiguous_strides(sizes)) : strides, offset);
  return self;
}

at::Tensor& set_full_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<std::int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {elements}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const at::Tensor none = new_device_tensor(self.device(), {0}, {1}, self.scalar_type());
  return set_tensor(self, none);
}

void record_stream(at::Tensor& self, at::Stream stream) { record_use(self.storage().data_ptr(), stream); }

// --- Copies ---

std::size_t bytes_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()) * tensor.itemsize(); }

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  // A replay would read the host memory again, which may have changed by then.
  refuse_while_recording(current_stream(to.device().index()), "copy to the device");
  const bool pinned = from.is_pinned();
  count(to.device().index(), [&](DeviceCounts& all) {
    all.bytes_to_device += static_cast<std::int64_t>(bytes_of(to));
    all.pageable_copies += !pinned && to.dim() > 0 && to.numel() > 0;
  });
  CpuView view;
  const at::Tensor target = view.of(to);
  // Pageable memory is read before the call returns.
  const at::Tensor source = pinned ? from : from.clone();
  const auto kernel = [target, source] { target.copy_(source); };
  if (pinned && !non_blocking) {
    count(to.device().index(), [](DeviceCounts& all) { ++all.host_reads; });
    return run_and_wait(to.device().index(), "copy to the device", {access_of(to, true)}, kernel);
  }
  launch_kernel(to.device().index(), "copy to the device", {access_of(to, true)}, kernel);
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  CpuView view;
  const at::Tensor source = view.of(from);
  const auto kernel = [source, to] { to.copy_(source); };
  const int device = from.device().index();
  count(device, [&](DeviceCounts& all) {
    ++all.copies_to_host;
    all.bytes_to_host += static_cast<std::int64_t>(bytes_of(from));
  });
  refuse_while_recording(current_stream(device), "copy to the host");
  if (non_blocking && to.is_pinned())
    return launch_kernel(device, "copy to the host", {access_of(from, false)}, kernel);
  count(device, [](DeviceCounts& all) { ++all.host_reads; });
  run_and_wait(device, "copy to the host", {access_of(from, false)}, kernel);
}

// Copies between two devices wait for the current streams of both, like CUDA's.
void copy_between(const at::Tensor& from, const at::Tensor& to) {
  CpuView view;
  const at::Tensor source = view.of(from), target = view.of(to);
  const int there = to.device().index(), here = from.device().index();
  if (there == here)
    return launch_kernel(here, "copy", {access_of(from, false), access_of(to, true)},
                         [source, target] { target.copy_(source); });
  run_and_wait(here, "copy to another device", {access_of(from, false)}, [] {});
  run_and_wait(there, "copy from another device", {access_of(to, true)}, [&] { target.copy_(source); });
}

// A read waits for the device's stream. The stream of another rank may contain a collective that waits for
// the reading rank, so such a test hangs in some runs. This check lets it fail in every run.
void refuse_other_devices(const at::Tensor& read) {
  const c10::Device now = c10::impl::getDeviceGuardImpl(kPretendType)->getDevice();
  TORCH_CHECK(read.device() == now, "a thread of ", now.str(), " reads a tensor of ", read.device().str(),
              ", whose stream may wait for this thread; copy the tensor to the CPU on its own rank");
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  note_operator("aten::copy_");
  if (to.numel() == 0) return to;
  if (on_pretend_device(from) && !on_pretend_device(to)) refuse_other_devices(from);
  const c10::DeviceGuard guard(on_pretend_device(to) ? to.device() : from.device());
  at::Tensor source = from;
  if (from.sizes() != to.sizes()) source = from.expand(to.sizes());
  if (!on_pretend_device(source))
    copy_to_device(source, to, non_blocking);
  else if (!on_pretend_device(to))
    copy_to_host(source, to, non_blocking);
  else
    copy_between(source, to);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  note_operator("aten::item");
  refuse_other_devices(self);
  const int device = self.device().index();
  const c10::DeviceGuard guard(self.device());
  count(device, [](DeviceCounts& all) { ++all.host_reads; });
  CpuView view;
  const at::Tensor source = view.of(self);
  at::Scalar value;
  run_and_wait(device, "item", {access_of(self, false)}, [&] { value = source.item(); });
  return value;
}

// --- Attention, with the kernels that the CPU would choose ---

std::int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool causal,
                              std::optional<double> scale, bool enable_gqa) {
  constexpr std::int64_t kFlash = 1, kMath = 0, kDevicesOwn = 4;
  CpuView view;
  const auto cpu_mask = mask ? std::optional(view.of(*mask)) : std::nullopt;
  const auto like = [&](const at::Tensor& tensor) {
    return view.of(tensor).detach().requires_grad_(tensor.requires_grad());
  };
  const std::int64_t choice =
      at::_fused_sdp_choice(like(query), like(key), like(value), cpu_mask, dropout, causal, scale, enable_gqa);
  return choice == kFlash ? kDevicesOwn : kMath;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& mask, double dropout, bool causal, bool, std::optional<double> scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, mask, scale);
  return {out, sums, {}, {}, query.size(2), key.size(2), {}, {}, {}};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, std::array<bool, 4>, const at::Tensor& out, const at::Tensor& sums, const at::Tensor&,
    const at::Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal, const at::Tensor&, const at::Tensor&,
    std::optional<double> scale) {
  const auto given = mask.defined() ? std::optional(mask) : std::nullopt;
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(gradient, query, key, value, out, sums,
                                                                               dropout, causal, given, scale);
  return {dq, dk, dv, {}};
}

// --- Convolutions, as the CPU computes them ---

std::vector<std::int64_t> sizes_of_convolution(const at::Tensor& input, const at::Tensor& weight,
                                               at::IntArrayRef stride, at::IntArrayRef padding,
                                               at::IntArrayRef dilation) {
  std::vector<std::int64_t> sizes{input.size(0), weight.size(0)};
  for (std::size_t i = 0; i < stride.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t reach = dilation[i] * (weight.size(dim) - 1) + 1;
    sizes.push_back((input.size(dim) + 2 * padding[i] - reach) / stride[i] + 1);
  }
  return sizes;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  note_operator("aten::convolution");
  TORCH_CHECK(!transposed, "the pretended device has no transposed convolution");
  const bool has_bias = bias && bias->defined();
  const at::Tensor plus = has_bias ? *bias : at::Tensor();
  const auto sizes = sizes_of_convolution(input, weight, stride, padding, dilation);
  const at::Tensor out = new_device_tensor(input.device(), sizes, c10::contiguous_strides(sizes), input.scalar_type());
  CpuView view;
  const at::Tensor in = view.of(input), by = view.of(weight), added = has_bias ? view.of(plus) : plus,
                   target = view.of(out);
  std::vector<Access> accesses{access_of(input, false), access_of(weight, false), access_of(out, true)};
  if (has_bias) accesses.push_back(access_of(plus, false));
  launch_kernel(
      input.device().index(), "convolution", std::move(accesses),
      [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), more = output_padding.vec()] {
        target.copy_(at::convolution(in, by, has_bias ? std::optional(added) : std::nullopt, stride, padding, dilation,
                                     transposed, more, groups));
      });
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& gradient, const at::Tensor& input,
                                                                    const at::Tensor& weight, at::IntArrayRef stride,
                                                                    at::IntArrayRef padding, at::IntArrayRef dilation,
                                                                    bool transposed, at::IntArrayRef output_padding,
                                                                    std::int64_t groups, std::array<bool, 3> wanted) {
  note_operator("aten::convolution_backward");
  const std::vector<std::int64_t> channels{gradient.size(1)};
  CpuView view;
  const at::Tensor given = view.of(gradient), in = view.of(input), by = view.of(weight);
  std::vector<Access> accesses{access_of(gradient, false), access_of(input, false), access_of(weight, false)};
  std::array<at::Tensor, 3> made, targets;
  for (std::size_t i = 0; i < 3; ++i) {
    if (!wanted[i]) continue;
    const at::IntArrayRef sizes = i == 0 ? input.sizes() : i == 1 ? weight.sizes() : at::IntArrayRef(channels);
    made[i] = new_device_tensor(input.device(), sizes, c10::contiguous_strides(sizes), input.scalar_type());
    targets[i] = view.of(made[i]);
    accesses.push_back(access_of(made[i], true));
  }
  launch_kernel(
      input.device().index(), "convolution_backward", std::move(accesses),
      [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(), more = output_padding.vec()] {
        const auto [of_input, of_weight, of_bias] =
            at::convolution_backward(given, in, by, at::OptionalIntArrayRef(channels), stride, padding, dilation,
                                     transposed, more, groups, wanted);
        const at::Tensor results[] = {of_input, of_weight, of_bias};
        for (std::size_t i = 0; i < 3; ++i)
          if (wanted[i]) targets[i].copy_(results[i]);
      });
  return {made[0], made[1], made[2]};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_full_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_", &set_nothing);
  library.impl("record_stream", &record_stream);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar_dense);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("_fused_sdp_choice", &choose_attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  library.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
}

// Lazily conjugated or negated tensors need no kernel of their own, because their CPU view has the same bit.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, library) { library.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace gantry::testing

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &::gantry::testing::choose_attention)
}  // namespace at::native
