#include "gantry/tensors/entry_reads.h"

#include <utility>

namespace gantry {
namespace {

thread_local EntryReads* recording_reads = nullptr;

}  // namespace

EntryReads::EntryReads() : outer_(std::exchange(recording_reads, this)) {}

EntryReads::~EntryReads() { recording_reads = outer_; }

void EntryReads::note(const std::string& name) {
  if (recording_reads) recording_reads->names_.insert(name);
}

}  // namespace gantry
