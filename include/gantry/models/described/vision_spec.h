// The image encoder of a model that reads images and text, as data: a tower of layers over the patches of an image, and
// a projector into the width of the decoder. Independent of LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::models {

// Layers with the module names of CLIP's encoders: norm, attention, norm, MLP, all with biases.
struct TowerSpec {
  std::int64_t hidden = 768, width = 3072, layers = 12, heads = 12;
  double eps = 1e-6;
  std::string activation = "gelu_pytorch_tanh";  // one of nn::activation_names()

  std::int64_t head_size() const { return hidden / heads; }
};

// The further sizes of a tower for images of any size whose patches are in one sequence (Qwen2.5-VL).
struct GridTowerSpec {
  std::int64_t frames = 2;                                  // number of frames in a patch
  std::int64_t merge = 2;                                   // a feature is made from merge x merge patches
  std::int64_t window = 112;                                // side of a window in pixels; layers attend within windows
  std::vector<std::int64_t> full_layers = {7, 15, 23, 31};  // layers that attend to all patches of a frame
  std::int64_t outputs = 3584;                              // width of a feature

  bool operator==(const GridTowerSpec&) const = default;
};

// The further sizes of a tower for images of any size, one image in a sequence, and a projector that makes a feature
// from a square of patches (Mistral 3).
struct PixtralSpec {
  std::int64_t merge = 2;       // a feature is made from merge x merge patches
  double theta = 10000;         // base of the rotary embedding of rows and columns
  double projector_eps = 1e-5;  // added to the mean square in the norm of the projector

  bool operator==(const PixtralSpec&) const = default;
};

struct VisionSpec {
  enum class Projector {
    kPooled,  // averages of squares of features, a norm and a matrix (Gemma 3)
    kMlp      // two linear layers with an activation between them (LLaVA 1.5)
  };
  TowerSpec tower;
  std::int64_t image_size = 224, patch = 16, channels = 3;
  // As in CLIP: a class token before the patches, a norm before the layers, and a projection of patches without a bias.
  // The class token is not a feature of the image, unless `keeps_class_token`.
  bool class_token = false, keeps_class_token = false;
  bool final_norm = true;  // a norm after the layers
  Projector projector = Projector::kPooled;
  std::int64_t pooled_side = 0;                  // kPooled: side of the square of features of an image
  std::string projector_activation = "gelu";     // kMlp, pixtral
  bool projector_bias = true;                    // kMlp, pixtral
  std::optional<GridTowerSpec> grid_tower = {};  // images of any size; image_size, the class token, the final norm and
                                                 // the projector are then not used
  std::optional<PixtralSpec> pixtral = {};  // images of any size; image_size, the class token, the final norm and the
                                            // kind of projector are then not used
  std::int64_t image_token = 0;             // the token in input_ids that a feature replaces
  bool both_directions = false;             // the tokens of an image attend to each other in both directions

  std::int64_t grid() const { return image_size / patch; }  // patches along a side
  std::int64_t places() const { return grid() * grid() + (class_token ? 1 : 0); }
  // For images of one size: the number of features of an image, which is the number of its tokens.
  std::int64_t features() const {
    if (projector == Projector::kPooled) return pooled_side * pooled_side;
    return grid() * grid() + (keeps_class_token ? 1 : 0);
  }
};

// The modules of a decoder's image encoder, by the names of their parameters in Hugging Face's files.
inline constexpr const char* kVisionTower = "vision_tower";
inline constexpr const char* kImageProjector = "multi_modal_projector";
inline constexpr const char* kGridTower = "visual";

}  // namespace gantry::models
