#include "gantry/data/corpus/parquet_file.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <parquet/arrow/reader.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

using RowJson = nlohmann::ordered_json;

constexpr std::int64_t kRowsAtOnce = 1024;

[[noreturn]] void refuse_parquet(const std::filesystem::path& path, const std::string& reason) {
  throw InputError({path.string(), reason, "a Parquet file of texts, numbers, lists and structures",
                    "check the file, or write the rows as JSON lines"});
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

// Converts entries of arrays of one file.
class EntryConverter {
 public:
  explicit EntryConverter(const std::filesystem::path& path) : path_(path) {}

  RowJson convert(const arrow::Array& array, std::int64_t row) const {
    if (array.IsNull(row)) return nullptr;
    switch (array.type_id()) {
      case arrow::Type::NA:
        return nullptr;
      case arrow::Type::BOOL:
        return as<arrow::BooleanArray>(array).Value(row);
      case arrow::Type::INT8:
        return as<arrow::Int8Array>(array).Value(row);
      case arrow::Type::INT16:
        return as<arrow::Int16Array>(array).Value(row);
      case arrow::Type::INT32:
        return as<arrow::Int32Array>(array).Value(row);
      case arrow::Type::INT64:
        return as<arrow::Int64Array>(array).Value(row);
      case arrow::Type::UINT8:
        return as<arrow::UInt8Array>(array).Value(row);
      case arrow::Type::UINT16:
        return as<arrow::UInt16Array>(array).Value(row);
      case arrow::Type::UINT32:
        return as<arrow::UInt32Array>(array).Value(row);
      case arrow::Type::UINT64:
        return as<arrow::UInt64Array>(array).Value(row);
      case arrow::Type::FLOAT:
        return as<arrow::FloatArray>(array).Value(row);
      case arrow::Type::DOUBLE:
        return as<arrow::DoubleArray>(array).Value(row);
      case arrow::Type::STRING:
        return as<arrow::StringArray>(array).GetString(row);
      case arrow::Type::LARGE_STRING:
        return as<arrow::LargeStringArray>(array).GetString(row);
      case arrow::Type::DICTIONARY: {
        const auto& coded = as<arrow::DictionaryArray>(array);
        return convert(*coded.dictionary(), coded.GetValueIndex(row));
      }
      case arrow::Type::LIST:
        return list_of<arrow::ListArray>(array, row);
      case arrow::Type::LARGE_LIST:
        return list_of<arrow::LargeListArray>(array, row);
      case arrow::Type::STRUCT:
        return object_of(as<arrow::StructArray>(array), row);
      default:
        refuse_parquet(path_, fmt::format("a column has the type {}", array.type()->ToString()));
    }
  }

 private:
  template <class List>
  RowJson list_of(const arrow::Array& array, std::int64_t row) const {
    const auto& lists = as<List>(array);
    RowJson made = RowJson::array();
    for (std::int64_t i = lists.value_offset(row); i < lists.value_offset(row + 1); ++i)
      made.push_back(convert(*lists.values(), i));
    return made;
  }

  RowJson object_of(const arrow::StructArray& array, std::int64_t row) const {
    RowJson made = RowJson::object();
    for (int i = 0; i < array.num_fields(); ++i)
      made[array.struct_type()->field(i)->name()] = convert(*array.field(i), row);
    return made;
  }

  const std::filesystem::path& path_;
};

class ParquetLines final : public PieceReader {
 public:
  explicit ParquetLines(const std::filesystem::path& path) : path_(path), bytes_(std::filesystem::file_size(path)) {
    parquet::arrow::FileReaderBuilder builder;
    require(builder.Open(take(arrow::io::ReadableFile::Open(path.string()))));
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(kRowsAtOnce);
    builder.properties(properties);
    file_ = take(builder.Build());
    rows_left_ = rows_ = file_->parquet_reader()->metadata()->num_rows();
    batches_ = take(file_->GetRecordBatchReader());
  }

  std::string_view next() override {
    text_.clear();
    std::shared_ptr<arrow::RecordBatch> batch;
    while (text_.empty()) {
      require(batches_->ReadNext(&batch));
      if (!batch) break;
      for (std::int64_t row = 0; row < batch->num_rows(); ++row) append_line(*batch, row);
      rows_left_ -= batch->num_rows();
    }
    return text_;
  }

  // Proportional to the rows, because a file is not read in its order.
  std::int64_t consumed() const override {
    const double share = rows_ == 0 ? 1 : 1 - static_cast<double>(rows_left_) / static_cast<double>(rows_);
    return static_cast<std::int64_t>(share * static_cast<double>(bytes_));
  }

 private:
  void append_line(const arrow::RecordBatch& batch, std::int64_t row) {
    RowJson line = RowJson::object();
    for (int i = 0; i < batch.num_columns(); ++i)
      if (RowJson value = EntryConverter(path_).convert(*batch.column(i), row); !value.is_null())
        line[batch.column_name(i)] = std::move(value);
    text_ += line.dump(-1, ' ', false, RowJson::error_handler_t::replace) + "\n";
  }

  void require(const arrow::Status& status) const {
    if (!status.ok()) refuse_parquet(path_, "the file cannot be read: " + status.message());
  }
  template <class Value>
  Value take(arrow::Result<Value> result) const {
    require(result.status());
    return std::move(result).ValueUnsafe();
  }

  std::filesystem::path path_;
  std::uintmax_t bytes_;
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  std::int64_t rows_ = 0, rows_left_ = 0;
  std::string text_;
};

}  // namespace

std::unique_ptr<PieceReader> open_parquet(const std::filesystem::path& path) {
  return std::make_unique<ParquetLines>(path);
}

}  // namespace gantry
