// Convolutions of the vocoder over time-major tensors [rows, channels], each fused with the norm and activation before
// it and the residual, gain and statistics after it. Built and called by serve_app/engine/cpu.
//
// A convolution along time with K taps is computed two outputs at a time by minimal filtering (Winograd 1980, F(2,3)):
// for outputs t and t + d (d the dilation) of three taps g over the inputs d0..d3 at t, t + d, t + 2d, t + 3d
//
//     M0 = (d0 - d2) g0                       y(t)     = M0 + M1 + M2
//     M1 = (d1 + d2) (g0 + g1 + g2) / 2       y(t + d) = M1 - M2 - M3
//     M2 = (d2 - d1) (g0 - g1 + g2) / 2
//     M3 = (d1 - d3) g2
//
// four products instead of six; a pair of taps is the case g2 = 0 and needs three instead of four. Longer filters are
// cut into such chunks, whose products are summed before they are combined. So each M is a matrix product over
// (chunk, input channel), with one of three transformed inputs: lag = x(t) - x(t + 2d), sum = x(t) + x(t + d) and
// step = x(t + d) - x(t). Transformed inputs and weights are bfloat16 or float32; everything else is float32, and sums
// over time are float64.
//
// The result does not depend on the number of threads: what is summed in which order follows from the shapes alone.

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

// Floats in a vector register, and pairs of rows in a tile: with two vectors of accumulators a pair and what is loaded,
// a tile fills the registers.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, PAIRS = 14;
#elif defined(__AVX2__)
constexpr int WIDTH = 8, PAIRS = 6;
#else
constexpr int WIDTH = 4, PAIRS = 10;
#endif
constexpr int PANEL = 2 * WIDTH;  // output channels of a tile
constexpr int MAX_CHUNKS = 8;

typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int Pair __attribute__((aligned(2), may_alias));  // two bfloat16

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector value) { *reinterpret_cast<Vector*>(to) = value; }
inline Vector every(float value) { return value - Vector{}; }

// The compiler may not look through this: it neither contracts nor repeats what made `value`.
#if defined(__x86_64__)
#define OPAQUE(value) asm("" : "+v"(value))
#else
#define OPAQUE(value) asm("" : "+w"(value))
#endif

// sin(x)**2. Reduced to a quarter turn around the nearest multiple of pi, whose sign the square drops; then an odd
// polynomial. Absolute error below 3e-7 for |x| < 1e4.
inline Vector sine_squared(Vector x) {
  const Vector shift = every(12582912.f);  // 1.5 * 2**23: adding it rounds to an integer
  Vector turns = x * 0.318309886f + shift;
  OPAQUE(turns);
  turns -= shift;
  Vector r = x - turns * 3.140625f;
  r -= turns * 9.67653589793e-4f;
  const Vector z = r * r;
  Vector p = z * -2.3889859e-08f + 2.7525562e-06f;
  p = p * z - 1.9840874e-04f;
  p = p * z + 8.3333310e-03f;
  p = p * z - 1.6666667e-01f;
  const Vector s = p * z * r + r;
  return s * s;
}

inline Vector leaky(Vector x, Vector slope) { return x < 0 ? x * slope : x; }

// Scratch of a thread, grown and kept.
struct Scratch {
  void* memory = nullptr;
  size_t size = 0;
  ~Scratch() { std::free(memory); }
  char* at_least(size_t bytes) {
    if (bytes > size) {
      std::free(memory);
      size = (bytes + 4095) & ~size_t(4095);
      memory = std::aligned_alloc(4096, size);
      if (!memory) std::abort();
    }
    return static_cast<char*>(memory);
  }
};
thread_local Scratch scratch;

template <bool NARROW>
struct Element {
  typedef float type;
};
template <>
struct Element<true> {
  typedef uint16_t type;
};

template <bool NARROW>
inline void put(typename Element<NARROW>::type* to, Vector value) {
#if defined(__AVX512BF16__)
  if constexpr (NARROW) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)value));
    return;
  }
#endif
  if constexpr (!NARROW) store(to, value);
}

// One M of a tile: PAIRS rows, `stride` elements apart, by PANEL columns. `weights` runs on through chunks and channels.
template <bool NARROW, int STRIDE>
inline void product(const typename Element<NARROW>::type* const* chunks, int count, int64_t channels, int64_t stride,
                    const typename Element<NARROW>::type* weights, float* to) {
  typedef typename Element<NARROW>::type T;
  if constexpr (STRIDE != 0) stride = STRIDE;
  Vector sums[PAIRS][2] = {};
  for (int k = 0; k < count; k++) {
    const T* x = chunks[k];
#if defined(__AVX512BF16__)
    if constexpr (NARROW) {
      for (int64_t c = 0; c < channels; c += 2, weights += 2 * PANEL) {  // two channels to a product of pairs
        const __m512bh w0 = (__m512bh)_mm512_loadu_si512(weights);
        const __m512bh w1 = (__m512bh)_mm512_loadu_si512(weights + PANEL);
#pragma GCC unroll 14
        for (int i = 0; i < PAIRS; i++) {
          __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const Pair*>(x + i * stride + c));
          OPAQUE(pair);  // loaded once, not once a product
          sums[i][0] = (Vector)_mm512_dpbf16_ps((__m512)sums[i][0], (__m512bh)pair, w0);
          sums[i][1] = (Vector)_mm512_dpbf16_ps((__m512)sums[i][1], (__m512bh)pair, w1);
        }
      }
      continue;
    }
#endif
    if constexpr (!NARROW) {
      for (int64_t c = 0; c < channels; c++, weights += PANEL) {
        const Vector w0 = load(weights), w1 = load(weights + WIDTH);
#pragma GCC unroll 14
        for (int i = 0; i < PAIRS; i++) {
          Vector one = every(x[i * stride + c]);
          OPAQUE(one);
          sums[i][0] += one * w0;
          sums[i][1] += one * w1;
        }
      }
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < PAIRS; i++) {
    store(to + i * PANEL, sums[i][0]);
    store(to + i * PANEL + WIDTH, sums[i][1]);
  }
}

}  // namespace

extern "C" {

// Mirrored by serve_app/engine/cpu/library.py.
struct Convolution {
  // Input [rows, channels]; channels a multiple of PANEL, rows `in_stride` floats apart.
  const float* in;
  int64_t in_stride, rows, channels;
  // Norm: sums over time of values and squares, [2, channels]; null for none. Then value * scale + shift of the normed.
  const double* in_sums;
  const float *scale, *shift;
  double epsilon;
  float in_gain;  // without a norm: what the input is multiplied with
  // Activation: Snake with these frequencies [channels]; if null, leaky with this slope (1 for none).
  const float* alpha;
  float slope;
  // Weights packed by serve_app/engine/cpu/packing.py: for each panel of outputs, each M, each chunk.
  const void* weights;
  const float* bias;
  int64_t outputs, taps, dilation, left;  // left: rows of zeros before the first
  int64_t narrow;                         // 1: weights are bfloat16
  // Output [out_rows, outputs]: (convolution + bias + addend + second addend) * gain. Addends may be null, and may be
  // the output itself.
  int64_t out_rows;
  const float* addend;
  int64_t addend_stride;
  const float* second_addend;
  int64_t second_stride;
  float gain;
  float* out;
  int64_t out_stride;
  double* out_sums;  // [2, outputs]; null for none
  int64_t threads;
};

}  // extern "C"

namespace {

struct Chunks {
  int count = 0, of_three = 0;  // those of three come first
  int64_t offsets[MAX_CHUNKS];
};

Chunks chunks_of(int64_t taps) {
  // As many threes as leave pairs: 2 = 2, 3 = 3, 7 = 3 + 2 + 2, 11 = 3 + 3 + 3 + 2.
  Chunks chunks;
  int64_t threes = taps / 3;
  while ((taps - 3 * threes) % 2) threes--;
  chunks.of_three = static_cast<int>(threes);
  for (int64_t at = 0; at < taps; at += chunks.count <= threes ? 3 : 2) chunks.offsets[chunks.count++] = at;
  return chunks;
}

// Rows that a thread takes at a time: what it reads again and again stays in its second-level cache.
int64_t block_rows(const Convolution& c, int64_t element) {
  const int64_t unit = 2 * PAIRS * c.dilation, halo = (c.taps + 1) * c.dilation;
  const int64_t fitting = (512 << 10) / (c.channels * (4 + 3 * element)) - halo;
  const int64_t least = 112;  // else a wide convolution would spend its time fetching weights
  const int64_t shared = (c.out_rows + 7) / 8;  // work for every thread
  const int64_t wanted = std::min(std::max(fitting, least), std::max(shared, unit));
  return std::max(unit, wanted / unit * unit);
}

template <bool NARROW>
void convolve(const Convolution& c) {
  typedef typename Element<NARROW>::type T;
  const Chunks chunks = chunks_of(c.taps);
  const int64_t d = c.dilation, C = c.channels, O = c.outputs, panels = O / PANEL;
  const int64_t block = block_rows(c, sizeof(T)), blocks = (c.out_rows + block - 1) / block;
  const int64_t groups = std::min(panels, (8 + blocks - 1) / blocks);  // few rows are shared out by outputs
  const int64_t per_panel = (3 * chunks.count + chunks.of_three) * C * PANEL;

  std::vector<float> means(C, 0.f), scales(C, c.in_gain), shifts(C, 0.f), inverse(C, 0.f);
  if (c.in_sums)
    for (int64_t i = 0; i < C; i++) {
      const double mean = c.in_sums[i] / c.rows, square = c.in_sums[C + i] / c.rows;
      const double factor = c.scale[i] / std::sqrt(std::max(0.0, square - mean * mean) + c.epsilon);
      means[i] = static_cast<float>(mean);
      scales[i] = static_cast<float>(factor);
      shifts[i] = c.shift[i];
    }
  if (c.alpha)
    for (int64_t i = 0; i < C; i++) inverse[i] = 1.f / c.alpha[i];

  std::vector<double> sums(c.out_sums ? blocks * 2 * O : 0, 0.0);

  // Positions along one phase (rows d apart) that tiles of whole PAIRS may read.
  const int64_t most_pairs = ((block / d + 1) / 2 + PAIRS - 1) / PAIRS * PAIRS;
  const int64_t half = most_pairs + (c.taps + 3) / 2;       // positions of one parity
  const int64_t plane = half * C, phase_size = 6 * plane;   // 3 inputs * 2 parities
  const int64_t active_rows = (2 * half + 2) * d;
  const size_t active_bytes = sizeof(float) * active_rows * C;
  const size_t planes_bytes = sizeof(T) * d * phase_size;
  const size_t bytes = active_bytes + planes_bytes + 4 * sizeof(float) * PAIRS * PANEL;

#pragma omp parallel for schedule(dynamic, 1) num_threads(c.threads)
  for (int64_t task = 0; task < blocks * groups; task++) {
    const int64_t b = task / groups, group = task % groups;
    const int64_t first = b * block, count = std::min(block, c.out_rows - first);
    char* memory = scratch.at_least(bytes);
    float* active = reinterpret_cast<float*>(memory);
    T* planes = reinterpret_cast<T*>(memory + active_bytes);
    float* products = reinterpret_cast<float*>(memory + active_bytes + planes_bytes);

    // Norm and activation, rows first - left and on.
    const int64_t pairs = ((count + d - 1) / d + 1) / 2, positions = 2 * pairs + c.taps - 1;
    const int64_t needed = (positions + 2) * d;
    for (int64_t r = 0; r < needed; r++) {
      float* to = active + r * C;
      const int64_t row = first - c.left + r;
      if (row < 0 || row >= c.rows) {
        std::memset(to, 0, sizeof(float) * C);
        continue;
      }
      const float* from = c.in + row * c.in_stride;
      if (c.alpha) {
        for (int64_t i = 0; i < C; i += WIDTH) {
          const Vector v = (load(from + i) - load(&means[i])) * load(&scales[i]) + load(&shifts[i]);
          store(to + i, sine_squared(v * load(c.alpha + i)) * load(&inverse[i]) + v);
        }
      } else {
        const Vector slope = every(c.slope);
        for (int64_t i = 0; i < C; i += WIDTH)
          store(to + i, leaky((load(from + i) - load(&means[i])) * load(&scales[i]) + load(&shifts[i]), slope));
      }
    }

    for (int64_t p = 0; p < d; p++)
      for (int64_t q = 0; q < positions; q++) {
        const float *x0 = active + (p + q * d) * C, *x1 = x0 + d * C, *x2 = x1 + d * C;
        T* lag = planes + p * phase_size + (q & 1) * plane + (q >> 1) * C;
        T *sum = lag + 2 * plane, *step = sum + 2 * plane;
        for (int64_t i = 0; i < C; i += WIDTH) {
          const Vector a = load(x0 + i), e = load(x1 + i);
          put<NARROW>(lag + i, a - load(x2 + i));
          put<NARROW>(sum + i, a + e);
          put<NARROW>(step + i, e - a);
        }
      }

    for (int64_t panel = group * panels / groups; panel < (group + 1) * panels / groups; panel++) {
      const int64_t o = panel * PANEL;
      const T* weights = static_cast<const T*>(c.weights) + panel * per_panel;
      const Vector bias[2] = {load(c.bias + o), load(c.bias + o + WIDTH)};
      double totals[2][PANEL] = {};
      for (int64_t p = 0; p < std::min(d, count); p++) {
        const int64_t in_phase = (count - p + d - 1) / d;  // outputs
        for (int64_t pair = 0; 2 * pair < in_phase; pair += PAIRS) {
          const T* w = weights;
          for (int j = 0; j < 4; j++) {
            // Which transformed input, and where a chunk begins in it.
            const T* base = planes + p * phase_size + (j == 1 ? 2 : j == 2 ? 4 : 0) * plane;
            const T* starts[MAX_CHUNKS];
            const int n = j < 3 ? chunks.count : chunks.of_three;
            for (int k = 0; k < n; k++) {
              const int64_t q = chunks.offsets[k] + (j > 0);
              starts[k] = base + (q & 1) * plane + (pair + (q >> 1)) * C;
            }
            float* to = products + j * PAIRS * PANEL;
            if (C == 128)
              product<NARROW, 128>(starts, n, C, C, w, to);
            else if (C == 256)
              product<NARROW, 256>(starts, n, C, C, w, to);
            else
              product<NARROW, 0>(starts, n, C, C, w, to);
            w += n * C * PANEL;
          }

          const int64_t valid = std::min<int64_t>(2 * PAIRS, in_phase - 2 * pair);
          for (int h = 0; h < 2; h++) {
            const int64_t column = o + h * WIDTH;
            Vector pivot{}, sum{}, square{};  // around the first value: squares of small numbers stay precise
            for (int64_t i = 0; i < valid; i++) {
              const float* m = products + (i >> 1) * PANEL + h * WIDTH;
              const Vector m0 = load(m), m1 = load(m + PAIRS * PANEL);
              const Vector m2 = load(m + 2 * PAIRS * PANEL), m3 = load(m + 3 * PAIRS * PANEL);
              Vector y = bias[h] + (i & 1 ? m1 - m2 - m3 : m0 + m1 + m2);
              const int64_t row = first + p + (2 * pair + i) * d;
              if (c.addend) y += load(c.addend + row * c.addend_stride + column);
              if (c.second_addend) y += load(c.second_addend + row * c.second_stride + column);
              y *= c.gain;
              store(c.out + row * c.out_stride + column, y);
              if (i == 0) pivot = y;
              sum += y - pivot;
              square += (y - pivot) * (y - pivot);
            }
            if (c.out_sums)
              for (int i = 0; i < WIDTH; i++) {
                const double v = pivot[i], s = sum[i];
                totals[0][h * WIDTH + i] += s + valid * v;
                totals[1][h * WIDTH + i] += square[i] + 2 * v * s + valid * v * v;
              }
          }
        }
      }
      if (c.out_sums)
        for (int k = 0; k < 2; k++) std::copy(totals[k], totals[k] + PANEL, &sums[(b * 2 + k) * O + o]);
    }
  }

  if (c.out_sums) {
    std::fill(c.out_sums, c.out_sums + 2 * O, 0.0);
    for (int64_t b = 0; b < blocks; b++)
      for (int64_t i = 0; i < 2 * O; i++) c.out_sums[i] += sums[b * 2 * O + i];
  }
}

}  // namespace

extern "C" {

// What Python must know to pack weights, and to see that both sides mean the same struct.
int64_t kokoro_panel() { return PANEL; }
int64_t kokoro_convolution_bytes() { return sizeof(Convolution); }

void kokoro_convolve(const Convolution* c) {
#if defined(__AVX512BF16__)
  if (c->narrow) return convolve<true>(*c);
#endif
  convolve<false>(*c);
}

// The machine's own limit: products of a tile whose operands stay in the first-level cache. Returns the floating-point
// operations done; scripts/bench_cpu.py times it.
int64_t kokoro_probe(int64_t repeats, int64_t narrow) {
  constexpr int64_t channels = 128;
  static float rows[PAIRS * channels], weights[channels * PANEL], out[PAIRS * PANEL];
  for (int64_t i = 0; i < repeats; i++) {
#if defined(__AVX512BF16__)
    if (narrow) {
      const uint16_t* start = reinterpret_cast<const uint16_t*>(rows);
      product<true, channels>(&start, 1, channels, channels, reinterpret_cast<const uint16_t*>(weights), out);
      continue;
    }
#endif
    const float* start = rows;
    product<false, channels>(&start, 1, channels, channels, weights, out);
  }
  (void)narrow;
  return repeats * 2 * PAIRS * PANEL * channels;
}

// out[rows, outputs] = x[rows, channels] weights + bias. Weights as a convolution's of one product, float32.
void kokoro_multiply(const float* x, int64_t stride, int64_t rows, int64_t channels, const float* weights,
                     const float* bias, int64_t outputs, float* out, int64_t out_stride, int64_t threads) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t panel = 0; panel < outputs / PANEL; panel++) {
    const int64_t padded = rows < PAIRS ? PAIRS * channels : 0;
    float* products = reinterpret_cast<float*>(scratch.at_least(sizeof(float) * (PAIRS * PANEL + padded)));
    const float* from = x;
    int64_t step = stride;
    if (padded) {  // a tile reads whole PAIRS
      float* copy = products + PAIRS * PANEL;
      std::memset(copy, 0, sizeof(float) * padded);
      for (int64_t r = 0; r < rows; r++) std::memcpy(copy + r * channels, x + r * stride, sizeof(float) * channels);
      from = copy;
      step = channels;
    }
    const float* w = weights + panel * channels * PANEL;
    for (int64_t r = 0; r < rows; r += PAIRS) {
      const int64_t first = std::max<int64_t>(0, std::min(r, rows - PAIRS));  // the last tile overlaps the one before
      const float* start = from + first * step;
      product<false, 0>(&start, 1, channels, step, w, products);
      for (int64_t i = 0; i < std::min<int64_t>(PAIRS, rows - first); i++)
        for (int64_t o = 0; o < PANEL; o += WIDTH)
          store(out + (first + i) * out_stride + panel * PANEL + o,
                load(products + i * PANEL + o) + load(bias + panel * PANEL + o));
    }
  }
}

// x[rows, channels] += y, where y may be null; and the sums over time of x and its squares, [2, channels].
void kokoro_add_and_sum(float* x, int64_t stride, const float* y, int64_t y_stride, int64_t rows, int64_t channels,
                        double* sums, int64_t threads) {
  const int64_t block = 512, blocks = (rows + block - 1) / block;
  std::vector<double> partial(blocks * 2 * channels);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < channels; i += WIDTH) {
      const int64_t first = b * block, last = std::min(rows, first + block);
      Vector pivot{}, sum{}, square{};
      for (int64_t r = first; r < last; r++) {
        Vector v = load(x + r * stride + i);
        if (y) store(x + r * stride + i, v += load(y + r * y_stride + i));
        if (r == first) pivot = v;
        sum += v - pivot;
        square += (v - pivot) * (v - pivot);
      }
      for (int k = 0; k < WIDTH; k++) {
        const double v = pivot[k], s = sum[k], n = static_cast<double>(last - first);
        partial[b * 2 * channels + i + k] = s + n * v;
        partial[(b * 2 + 1) * channels + i + k] = square[k] + 2 * v * s + n * v * v;
      }
    }
  std::fill(sums, sums + 2 * channels, 0.0);
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < 2 * channels; i++) sums[i] += partial[b * 2 * channels + i];
}

}  // extern "C"
