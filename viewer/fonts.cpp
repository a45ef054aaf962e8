#include "viewer/fonts.hpp"

#include <GLFW/glfw3.h>
#include <fontconfig/fontconfig.h>
#include <ft2build.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>
#include FT_FREETYPE_H

// OpenGL 3.3 has it; the header that GLFW includes may be older.
#ifndef GL_TEXTURE_SWIZZLE_RGBA
#define GL_TEXTURE_SWIZZLE_RGBA 0x8E46
#endif
#ifndef GL_R8
#define GL_R8 0x8229
#endif
#ifndef GL_CLAMP_TO_EDGE
#define GL_CLAMP_TO_EDGE 0x812F
#endif

namespace viewer {

namespace {

constexpr int atlas_side = 2048;

// The horizontal place of a glyph is kept to a quarter of a pixel, so that letters keep their
// distances.
constexpr int quarters = 4;

struct Glyph {
  float left = 0, top = 0;  // from the pen to the picture's corner, in pixels
  float width = 0, height = 0;
  float u0 = 0, v0 = 0, u1 = 0, v1 = 0;
};

struct GlyphKey {
  std::uint32_t file, index, size, quarter;
  bool operator==(const GlyphKey&) const = default;
};
struct GlyphHash {
  std::size_t operator()(const GlyphKey& key) const {
    std::uint64_t mixed = (std::uint64_t{key.file} << 56) ^ (std::uint64_t{key.size} << 40) ^
                          (std::uint64_t{key.quarter} << 36) ^ key.index;
    return static_cast<std::size_t>(mixed * 0x9E3779B97F4A7C15u);
  }
};

// Which file draws a character, and as which of its glyphs.
struct Source {
  std::uint32_t file = 0, glyph = 0;
};

struct Wish {  // what is asked of fontconfig for a face
  const char* family;
  int weight, slant;
};
constexpr std::array<Wish, face_count> wishes{{
    {"DejaVu Sans", FC_WEIGHT_REGULAR, FC_SLANT_ROMAN},
    {"DejaVu Sans", FC_WEIGHT_BOLD, FC_SLANT_ROMAN},
    {"DejaVu Sans", FC_WEIGHT_REGULAR, FC_SLANT_OBLIQUE},
    {"DejaVu Sans", FC_WEIGHT_BOLD, FC_SLANT_OBLIQUE},
    {"DejaVu Sans Mono", FC_WEIGHT_REGULAR, FC_SLANT_ROMAN},
    {"DejaVu Sans Mono", FC_WEIGHT_BOLD, FC_SLANT_ROMAN},
}};

// Sizes are whole pixels while small, and a few per cent apart beyond, so that a slow zoom reuses
// what it drew.
int drawn_size(float pixels) {
  const float bounded = std::clamp(pixels, 4.0f, 160.0f);
  if (bounded < 32) return static_cast<int>(std::lround(bounded));
  return static_cast<int>(std::lround(std::exp2(std::round(std::log2(bounded) * 16) / 16)));
}

}  // namespace

char32_t next_character(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 1) {
    text.remove_prefix(1);
    return first;
  }
  char32_t character = first & (0xFFu >> (length + 1));
  bool good = length != 0 && length <= text.size();
  for (std::size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xC0) == 0x80;
    character = (character << 6) | (byte(i) & 0x3Fu);
  }
  text.remove_prefix(good ? length : 1);
  return good ? character : U'\uFFFD';
}

struct Fonts::Inside {
  FT_Library library = nullptr;
  std::vector<FT_Face> files;
  std::vector<int> file_size;  // the size that each file is set to
  std::map<std::pair<std::string, int>, std::uint32_t> opened;
  std::array<std::uint32_t, face_count> face_file{};
  std::array<std::unordered_map<char32_t, Source>, face_count> sources;
  std::unordered_map<GlyphKey, Glyph, GlyphHash> glyphs;
  std::unordered_map<GlyphKey, float, GlyphHash> advances;

  GLuint texture = 0;
  float pixels_per_unit = 1;
  bool full = false;
  int shelf_x = 1, shelf_y = 1,
      shelf_height = 0;  // the free corner of the atlas, filled row by row

  std::uint32_t open(const std::string& path, int index) {
    auto [found, is_new] = opened.try_emplace({path, index}, 0);
    if (!is_new) return found->second;
    FT_Face face = nullptr;
    if (FT_New_Face(library, path.c_str(), index, &face) != 0)
      throw std::runtime_error("the font " + path + " cannot be read");
    files.push_back(face);
    file_size.push_back(0);
    return found->second = static_cast<std::uint32_t>(files.size() - 1);
  }

  // The file that fontconfig thinks nearest to a wish, and, if `character` is not 0, one that has
  // this character.
  std::pair<std::string, int> match(const Wish& wish, char32_t character) {
    FcPattern* pattern = FcPatternCreate();
    FcPatternAddString(pattern, FC_FAMILY, reinterpret_cast<const FcChar8*>(wish.family));
    FcPatternAddInteger(pattern, FC_WEIGHT, wish.weight);
    FcPatternAddInteger(pattern, FC_SLANT, wish.slant);
    FcPatternAddBool(pattern, FC_SCALABLE, FcTrue);
    if (character != 0) {
      FcCharSet* characters = FcCharSetCreate();
      FcCharSetAddChar(characters, character);
      FcPatternAddCharSet(pattern, FC_CHARSET, characters);
      FcCharSetDestroy(characters);
    }
    FcConfigSubstitute(nullptr, pattern, FcMatchPattern);
    FcDefaultSubstitute(pattern);
    FcResult result{};
    FcPattern* best = FcFontMatch(nullptr, pattern, &result);
    FcPatternDestroy(pattern);
    std::pair<std::string, int> answer;
    if (best == nullptr) return answer;
    FcChar8* file = nullptr;
    if (FcPatternGetString(best, FC_FILE, 0, &file) == FcResultMatch)
      answer.first = reinterpret_cast<const char*>(file);
    FcPatternGetInteger(best, FC_INDEX, 0, &answer.second);
    FcPatternDestroy(best);
    return answer;
  }

  Source find_source(Face face, char32_t character) {
    const auto which = static_cast<std::size_t>(face);
    const std::uint32_t own = face_file[which];
    if (const FT_UInt glyph = FT_Get_Char_Index(files[own], character)) return {own, glyph};
    const auto [path, index] = match(wishes[which], character);
    if (path.empty()) return {own, 0};
    const std::uint32_t other = open(path, index);
    if (const FT_UInt glyph = FT_Get_Char_Index(files[other], character)) return {other, glyph};
    return {own, 0};  // the font's own sign for a character that it lacks
  }

  Source source(Face face, char32_t character) {
    auto [found, is_new] = sources[static_cast<std::size_t>(face)].try_emplace(character);
    if (is_new) found->second = find_source(face, character);
    return found->second;
  }

  void set_size(std::uint32_t file, int size) {
    if (file_size[file] == size) return;
    file_size[file] = size;
    FT_Set_Pixel_Sizes(files[file], 0, static_cast<FT_UInt>(size));
  }

  float advance(Source from, int size) {
    auto [found, is_new] =
        advances.try_emplace({from.file, from.glyph, static_cast<std::uint32_t>(size), 0});
    if (!is_new) return found->second;
    set_size(from.file, size);
    if (FT_Load_Glyph(files[from.file], from.glyph, FT_LOAD_TARGET_LIGHT) == 0)
      found->second = static_cast<float>(files[from.file]->glyph->linearHoriAdvance) / 65536.0f;
    return found->second;
  }

  // A free place in the atlas, or {-1, -1} when it is full.
  std::pair<int, int> take_place(int width, int height) {
    if (shelf_x + width + 1 > atlas_side) {
      shelf_x = 1;
      shelf_y += shelf_height + 1;
      shelf_height = 0;
    }
    if (shelf_y + height + 1 > atlas_side || width + 2 > atlas_side) return {-1, -1};
    const std::pair<int, int> place{shelf_x, shelf_y};
    shelf_x += width + 1;
    shelf_height = std::max(shelf_height, height);
    return place;
  }

  const Glyph* glyph(Source from, int size, int quarter) {
    const GlyphKey key{from.file, from.glyph, static_cast<std::uint32_t>(size),
                       static_cast<std::uint32_t>(quarter)};
    auto [found, is_new] = glyphs.try_emplace(key);
    if (is_new && !render(key, found->second)) {
      glyphs.erase(found);
      return nullptr;
    }
    return &found->second;
  }

  bool render(const GlyphKey& key, Glyph& into) {
    set_size(key.file, static_cast<int>(key.size));
    FT_Face face = files[key.file];
    FT_Vector shift{static_cast<FT_Pos>(key.quarter * 64 / quarters), 0};
    FT_Set_Transform(face, nullptr, &shift);
    const FT_Error error = FT_Load_Glyph(face, key.index, FT_LOAD_TARGET_LIGHT | FT_LOAD_RENDER);
    FT_Set_Transform(face, nullptr, nullptr);
    if (error != 0 || face->glyph->bitmap.pixel_mode != FT_PIXEL_MODE_GRAY)
      return true;  // drawn as nothing
    const FT_Bitmap& picture = face->glyph->bitmap;
    const int width = static_cast<int>(picture.width), height = static_cast<int>(picture.rows);
    if (width == 0 || height == 0) return true;
    const auto [x, y] = take_place(width, height);
    if (x < 0) {
      full = true;
      return false;
    }
    upload(picture, x, y);
    constexpr float side = atlas_side;
    into.left = static_cast<float>(face->glyph->bitmap_left);
    into.top = -static_cast<float>(face->glyph->bitmap_top);
    into.width = static_cast<float>(width);
    into.height = static_cast<float>(height);
    into.u0 = static_cast<float>(x) / side;
    into.v0 = static_cast<float>(y) / side;
    into.u1 = static_cast<float>(x + width) / side;
    into.v1 = static_cast<float>(y + height) / side;
    return true;
  }

  void upload(const FT_Bitmap& picture, int x, int y) const {
    const auto width = static_cast<std::size_t>(picture.width);
    std::vector<unsigned char> rows(width * picture.rows);
    for (std::size_t row = 0; row < picture.rows; ++row)
      std::memcpy(&rows[row * width],
                  picture.buffer + static_cast<std::ptrdiff_t>(row) * picture.pitch, width);
    GLint bound = 0;
    glGetIntegerv(GL_TEXTURE_BINDING_2D, &bound);
    glBindTexture(GL_TEXTURE_2D, texture);
    glPixelStorei(GL_UNPACK_ALIGNMENT, 1);
    glTexSubImage2D(GL_TEXTURE_2D, 0, x, y, static_cast<GLsizei>(picture.width),
                    static_cast<GLsizei>(picture.rows), GL_RED, GL_UNSIGNED_BYTE, rows.data());
    glBindTexture(GL_TEXTURE_2D, static_cast<GLuint>(bound));
  }

  // One channel is stored; the sampler reads it as white with that much opacity.
  void make_texture() {
    glGenTextures(1, &texture);
    glBindTexture(GL_TEXTURE_2D, texture);
    const std::vector<unsigned char> nothing(static_cast<std::size_t>(atlas_side) * atlas_side);
    glPixelStorei(GL_UNPACK_ALIGNMENT, 1);
    glTexImage2D(GL_TEXTURE_2D, 0, GL_R8, atlas_side, atlas_side, 0, GL_RED, GL_UNSIGNED_BYTE,
                 nothing.data());
    const std::array<GLint, 4> swizzle{GL_ONE, GL_ONE, GL_ONE, GL_RED};
    glTexParameteriv(GL_TEXTURE_2D, GL_TEXTURE_SWIZZLE_RGBA, swizzle.data());
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_LINEAR);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_LINEAR);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
    glBindTexture(GL_TEXTURE_2D, 0);
  }

  // Calls visit(source, pen in pixels) for each character, and answers where the pen is in the end.
  template <class Visit>
  float walk(Face face, int size, std::string_view text, Visit visit) {
    float pen = 0;
    while (!text.empty()) {
      const Source from = source(face, next_character(text));
      visit(from, pen);
      pen += advance(from, size);
    }
    return pen;
  }
};

Fonts::Fonts() : inside_(std::make_unique<Inside>()) {
  if (FcInit() == FcFalse || FT_Init_FreeType(&inside_->library) != 0)
    throw std::runtime_error("the libraries that draw text cannot be started");
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    const auto [path, index] = inside_->match(wishes[i], 0);
    if (path.empty())
      throw std::runtime_error(
          "no font is installed; on Debian and Ubuntu: apt install fonts-dejavu");
    inside_->face_file[i] = inside_->open(path, index);
  }
}

Fonts::~Fonts() {
  if (inside_->texture != 0) glDeleteTextures(1, &inside_->texture);
  for (FT_Face face : inside_->files) FT_Done_Face(face);
  FT_Done_FreeType(inside_->library);
}

bool Fonts::begin_frame(float pixels_per_unit) {
  inside_->pixels_per_unit = pixels_per_unit;
  if (inside_->texture == 0) inside_->make_texture();
  if (!inside_->full) return false;
  inside_->full = false;
  inside_->glyphs.clear();
  inside_->shelf_x = inside_->shelf_y = 1;
  inside_->shelf_height = 0;
  return true;
}

float Fonts::width(Face face, float size, std::string_view text) {
  const float pixels = size * inside_->pixels_per_unit;
  const int drawn = drawn_size(pixels);
  const float pen = inside_->walk(face, drawn, text, [](Source, float) {});
  return pen * size / static_cast<float>(drawn);
}

float Fonts::ascent(Face face, float size) {
  const FT_Face file = inside_->files[inside_->face_file[static_cast<std::size_t>(face)]];
  return size * static_cast<float>(file->ascender) / static_cast<float>(file->units_per_EM);
}

float Fonts::descent(Face face, float size) {
  const FT_Face file = inside_->files[inside_->face_file[static_cast<std::size_t>(face)]];
  return -size * static_cast<float>(file->descender) / static_cast<float>(file->units_per_EM);
}

void Fonts::draw(ImDrawList& list, Face face, float size, ImVec2 at, ImU32 color,
                 std::string_view text) {
  const float per_unit = inside_->pixels_per_unit;
  const int drawn = drawn_size(size * per_unit);
  const float stretch = size * per_unit / static_cast<float>(drawn);  // 1 for all but large text
  const float left = at.x * per_unit;
  const float baseline = std::round(at.y * per_unit);
  list.PushTextureID(ImTextureID(std::uintptr_t{inside_->texture}));
  inside_->walk(face, drawn, text, [&](Source from, float pen) {
    const float x = left + pen * stretch;
    const float whole = std::floor(x + 0.5f / quarters);
    const int quarter =
        std::clamp(static_cast<int>((x - whole) * quarters + 0.5f), 0, quarters - 1);
    const Glyph* glyph = inside_->glyph(from, drawn, quarter);
    if (glyph == nullptr || glyph->width == 0) return;
    const ImVec2 low{(whole + glyph->left * stretch) / per_unit,
                     (baseline + glyph->top * stretch) / per_unit};
    const ImVec2 high{low.x + glyph->width * stretch / per_unit,
                      low.y + glyph->height * stretch / per_unit};
    list.PrimReserve(6, 4);
    list.PrimRectUV(low, high, {glyph->u0, glyph->v0}, {glyph->u1, glyph->v1}, color);
  });
  list.PopTextureID();
}

}  // namespace viewer
