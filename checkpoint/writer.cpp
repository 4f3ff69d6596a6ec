#include "gantry/checkpoint/writer.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include <ATen/record_function.h>

#include "gantry/checkpoint/format/checkpoint_folder.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/slices.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The data that one rank writes.
struct Snapshot {
  std::string file;
  TensorDict tensors;
  std::vector<ManifestTensor> entries;
  std::uint64_t bytes = 0;
};

// Copies to the CPU, into `buffer` if its shape and type fit: allocating memory costs more than copying.
torch::Tensor copy_of(const torch::Tensor& tensor, torch::Tensor buffer) {
  const torch::NoGradGuard no_grad;
  if (!buffer.defined() || buffer.sizes() != tensor.sizes() || buffer.scalar_type() != tensor.scalar_type())
    buffer = torch::empty(tensor.sizes(), torch::TensorOptions(tensor.scalar_type()));
  return buffer.copy_(tensor);
}

// True if this rank writes its part: of a parameter that several pipeline ranks hold, the first one writes, unless each
// of them has rows of its own (parallel.vocabulary: pipeline).
bool is_written_here(const StateSource& state, const Placement& placement, const Coordinates& coordinates) {
  const auto axes = placement.sharded_axes();
  return std::any_of(axes.begin(), axes.end(), axis::is_pipeline) ||
         state.first_holder(placement) == coordinates.at(axis::kPipeline);
}

// With `buffers`, the copies of the previous save, the tensors are copied, so that training can continue.
Snapshot take_snapshot(StateSource& state, const ProcessGroupMesh& mesh, const TensorDict* buffers) {
  Snapshot snapshot{.file = rank_file_name(mesh.rank()), .tensors = {}, .entries = {}};
  const auto& coordinates = mesh.coordinates();
  WriterShare share(mesh);
  for (const auto& [kind, held, fallback] : state.state_entries()) {
    if (!is_written_here(state, held.placement, coordinates)) continue;
    ManifestTensor entry{
        kind, held.placement.name, &stored_type_of(held.tensor.scalar_type()), held.placement.global_shape, {}};
    if (!share.turn_of(held.placement, static_cast<std::int64_t>(entry.bytes()))) continue;
    entry.slices.push_back({snapshot.file, owned_shards(held.placement, coordinates)});
    torch::Tensor tensor = owned_part(held, coordinates);
    if (tensor.numel() == 0 && entry.bytes() > 0) continue;  // other ranks own all of it
    if (buffers) tensor = copy_of(tensor, buffers->get(entry.key()));
    snapshot.bytes += tensor.nbytes();
    snapshot.tensors.set(entry.key(), tensor);
    snapshot.entries.push_back(std::move(entry));
  }
  return snapshot;
}

void write_snapshot(const std::string& folder, const Snapshot& snapshot, FileSystem& files) {
  HashedFile file(files, folder + "/" + snapshot.file);
  write_tensors(file, snapshot.tensors, {});
  file.finish();
  write_part(folder, {snapshot.file, {file.hash(), file.size()}, snapshot.entries}, files);
}

Manifest header_of(const SaveRequest& request, const StateSource& state, const ProcessGroupMesh& mesh) {
  Manifest header{.step = request.step,
                  .policy = request.policy,
                  .model_config = request.model_config,
                  .config_text = request.config_text,
                  .layout = {},
                  .threads_per_rank = request.threads_per_rank,
                  .numbers = state.state_numbers(),
                  .progress = request.progress,
                  .user = request.user,
                  .files = {},
                  .companions = {},
                  .tensors = {}};
  for (const auto& axis : mesh.mesh().axes()) header.layout[axis.name] = axis.size;
  return header;
}

bool is_ready(const std::shared_future<void>& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

// A save in progress. The thread that writes sets the promises. The futures show the state of this rank only.
struct CheckpointWriter::Job {
  Snapshot snapshot;
  Manifest header;
  std::shared_ptr<const CompanionFiles> companions;
  KeptSteps kept;
  std::promise<void> write_promise, commit_promise;
  std::shared_future<void> written{write_promise.get_future()}, committed{commit_promise.get_future()};
};

CheckpointWriter::CheckpointWriter(const std::string& directory, const ProcessGroupMesh& mesh,
                                   const WriterOptions& options)
    : mesh_(mesh),
      options_(options),
      files_(options.files ? *options.files : system_files(), progress_),
      directory_(directory) {
  on_disk([&] {
    if (mesh_.rank() == 0) folder_ = std::make_unique<CheckpointFolder>(directory, files_, options_.lock_seconds);
  });
  pass_on_warnings();
}

CheckpointWriter::~CheckpointWriter() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::on_disk(const std::function<void()>& work) {
  work_on_disk(mesh_.world_group(), options_.disk, progress_, work);
}

void CheckpointWriter::pass_on_warnings() {
  if (!folder_) return;
  for (const auto& line : folder_->take_warnings()) options_.warn ? options_.warn(line) : print_warning(line);
}

// The files are read once, because the model directory may be removed while the run continues.
std::shared_ptr<const CompanionFiles> CheckpointWriter::companions_of(const std::string& model_directory) {
  if (!companions_ || model_directory != companions_from_) {
    companions_ = std::make_shared<const CompanionFiles>(read_companion_files(model_directory));
    companions_from_ = model_directory;
    for (const auto& line : companions_->left_out) folder_->warn(line);
  }
  return companions_;
}

void CheckpointWriter::save(const SaveRequest& request, StateSource& state) {
  finish();
  auto job = std::make_shared<Job>();
  job->snapshot = take_snapshot(state, mesh_, options_.async ? &buffers_ : nullptr);
  if (options_.async) buffers_ = job->snapshot.tensors;
  job->header = header_of(request, state, mesh_);
  job->kept = {request.keep, request.stays};
  const double bytes = all_reduce_number(mesh_.world_group(), static_cast<double>(job->snapshot.bytes));
  on_disk([&] {
    if (!folder_) return;
    job->companions = companions_of(request.model_directory);
    folder_->begin(request.step, static_cast<std::uint64_t>(bytes) + job->companions->bytes());
  });
  pass_on_warnings();
  if (!options_.async) return write_at_once(job);
  thread_ = std::thread([this, job] {
    // Not profiled: a profile ends when the ranks have met, and this thread may then still run.
    const at::DisableRecordFunctionGuard unseen;
    write_in_background(job);
  });
  job_ = job;
}

void CheckpointWriter::write_at_once(const std::shared_ptr<Job>& job) {
  const std::int64_t step = job->header.step;
  on_disk([&] { write_snapshot(partial_folder(directory_, step), job->snapshot, files_); });
  on_disk([&] {
    if (folder_) folder_->commit(std::move(job->header), mesh_.mesh().size(), job->kept, *job->companions);
  });
  pass_on_warnings();
  last_ = directory_ + "/" + step_folder_name(step);
}

// Writes this rank's file. Rank 0 then waits for the files of the others and commits.
void CheckpointWriter::write_in_background(const std::shared_ptr<Job>& job) {
  const std::int64_t step = job->header.step;
  try {
    write_snapshot(partial_folder(directory_, step), job->snapshot, files_);
    job->snapshot.tensors = {};
    job->write_promise.set_value();
  } catch (...) {
    job->write_promise.set_exception(std::current_exception());
    job->commit_promise.set_value();
    return;
  }
  const std::chrono::seconds patience(static_cast<std::int64_t>(options_.disk.stall_seconds));
  try {
    if (folder_ && folder_->wait_for_parts(step, mesh_.mesh().size(), stop_, patience))
      folder_->commit(job->header, mesh_.mesh().size(), job->kept, *job->companions);
    job->commit_promise.set_value();
  } catch (...) {
    job->commit_promise.set_exception(std::current_exception());
  }
}

void CheckpointWriter::finish() {
  if (!job_) return;
  const auto job = std::exchange(job_, nullptr);
  on_disk([&] {  // an error on one rank ends the others here
    try {
      job->written.get();
    } catch (...) {
      thread_.join();  // the thread is ending, and the next save starts a new one
      throw;
    }
  });
  on_disk([&] {
    thread_.join();
    job->committed.get();
  });
  pass_on_warnings();
  last_ = directory_ + "/" + step_folder_name(job->header.step);
}

void CheckpointWriter::check() {
  if (!job_) return;
  for (const auto& future : {job_->written, job_->committed})
    if (is_ready(future)) future.get();
}

std::string save_checkpoint(const SaveRequest& request, StateSource& state, const ProcessGroupMesh& mesh) {
  CheckpointWriter writer(request.directory, mesh);
  writer.save(request, state);
  return writer.last();
}

}  // namespace gantry
