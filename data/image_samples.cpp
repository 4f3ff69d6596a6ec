#include "gantry/data/image_samples.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "gantry/data/images/processor_entries.h"
#include "gantry/data/sample_dataset.h"
#include "gantry/data/sample_numbers.h"

namespace gantry {
namespace {

class ImageSamples final : public SampleDataset {
 public:
  ImageSamples(std::unique_ptr<const Dataset> text, std::shared_ptr<const ImageReader> reader,
               std::function<std::vector<RowImages>(std::int64_t)> images_of)
      : text_(std::move(text)), reader_(std::move(reader)), images_of_(std::move(images_of)) {}

  std::int64_t size() const override { return text_->size(); }
  std::int64_t sequence_length() const override { return text_->sequence_length(); }
  bool is_slow() const override { return true; }
  std::vector<SampleEntry> entries() const override { return text_->entries(); }
  std::string summary() const override { return text_->summary(); }
  std::vector<SampleToken> tokens_of(std::int64_t sample) const override { return text_->tokens_of(sample); }
  std::string label_of(std::int64_t sample) const override { return text_->label_of(sample); }
  void read_numbers(std::int64_t sample, const NumberRow& row) const override { text_->read_numbers(sample, row); }

  TensorDict sample(std::int64_t index) const override {
    TensorDict made = sample_of(entries(), [&](const NumberRow& row) { read_numbers(index, row); });
    std::vector<ProcessedImage> images;
    std::map<std::filesystem::path, std::size_t> numbers;
    for (const auto& [of_row, place] : images_of_(index))
      for (const LineImage& image : of_row) {
        const auto file = std::filesystem::path(place).parent_path() / image.file;
        if (const auto [found, is_new] = numbers.try_emplace(file, images.size()); is_new)
          images.push_back(reader_->read(file));
        else
          images.push_back(ProcessedImage(images[found->second]));
        if (images.back().size != image.size)
          throw InputError({place, "the image '" + image.file + "' has another size than when the line was encoded",
                            "unchanged images", "start the run again with data.cache: never"});
      }
    for (const auto& [name, tensor] : processor_entries(images, reader_->format().sizes)) made.set(name, tensor);
    return made;
  }

 private:
  std::unique_ptr<const Dataset> text_;
  std::shared_ptr<const ImageReader> reader_;
  std::function<std::vector<RowImages>(std::int64_t)> images_of_;
};

}  // namespace

std::unique_ptr<Dataset> with_images(std::unique_ptr<const Dataset> text, std::shared_ptr<const ImageReader> reader,
                                     std::function<std::vector<RowImages>(std::int64_t sample)> images_of) {
  return std::make_unique<ImageSamples>(std::move(text), std::move(reader), std::move(images_of));
}

}  // namespace gantry
