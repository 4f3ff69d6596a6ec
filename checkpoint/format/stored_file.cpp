#include "gantry/checkpoint/format/stored_file.h"

#include "gantry/core/error.h"

namespace gantry {

const StoredTensor& StoredFile::at(const std::string& name) const {
  if (const auto found = header_.tensors.find(name); found != header_.tensors.end()) return found->second;
  throw InputError({path_, "the file has no tensor '" + name + "'", "", "check that the file belongs to this model"});
}

}  // namespace gantry
