#include "device_generator.h"

#include <array>

#include <ATen/CPUGeneratorImpl.h>

#include "pretend_device.h"

namespace gantry::testing {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(int device, at::Generator cpu)
      : GeneratorImpl(pretend_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const { return cpu_; }
  void set_current_seed(std::uint64_t seed) override { cpu_.set_current_seed(seed); }
  void set_offset(std::uint64_t offset) override { cpu_.set_offset(offset); }
  std::uint64_t get_offset() const override { return cpu_.get_offset(); }
  std::uint64_t current_seed() const override { return cpu_.current_seed(); }
  std::uint64_t seed() override { return cpu_.seed(); }
  void set_state(const c10::TensorImpl& state) override { cpu_.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return cpu_.unsafeGetGeneratorImpl()->get_state(); }

 private:
  GeneratorImpl* clone_impl() const override { return new DeviceGenerator(device().index(), cpu_.clone()); }
  at::Generator cpu_;
};

}  // namespace

at::Generator new_device_generator(int device) {
  return at::make_generator<DeviceGenerator>(device, at::detail::createCPUGenerator());
}

const at::Generator& device_generator(int device) {
  static const auto* all = [] {
    auto* made = new std::array<at::Generator, kPretendDevices>;
    for (int index = 0; index < kPretendDevices; ++index)
      (*made)[static_cast<std::size_t>(index)] = new_device_generator(index);
    return made;
  }();
  return all->at(static_cast<std::size_t>(device));
}

at::Generator cpu_generator_of(const at::Generator& generator) {
  return dynamic_cast<const DeviceGenerator&>(*generator.unsafeGetGeneratorImpl()).cpu();
}

}  // namespace gantry::testing
