//! Walks over several strided operands at once: dimensions merged, then cut into two-dimensional tiles.
//!
//! Guarantees: every index is visited exactly once; dimensions of size one are gone, and neighbors that every operand
//! walks as one are one. The order follows the memory of a leading operand (an output), so writes are sequential. A tile
//! is a piece of a row, several whole rows, or a square block when some operand is transposed: then each of its
//! cache lines is read once and not once per row.

use smallvec::SmallVec;

/// Sizes, and a stride per dimension and operand.
pub(crate) struct Geometry {
    sizes: SmallVec<[usize; 6]>,
    /// `strides[d * operands + k]`.
    strides: SmallVec<[usize; 24]>,
    operands: usize,
}

impl Geometry {
    /// Merges the dimensions of operands that have the same `sizes`. The order follows operand `lead`.
    pub(crate) fn new(sizes: &[usize], strides: &[&[usize]], lead: usize) -> Geometry {
        let operands = strides.len();
        let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).filter(|&d| sizes[d] != 1).collect();
        order.sort_by(|&a, &b| strides[lead][b].cmp(&strides[lead][a])); // stable
        let mut g = Geometry { sizes: SmallVec::new(), strides: SmallVec::new(), operands };
        for d in order {
            let last = g.sizes.len().wrapping_sub(1);
            let row = last.wrapping_mul(operands);
            if !g.sizes.is_empty() && (0..operands).all(|k| g.strides[row + k] == strides[k][d] * sizes[d]) {
                g.sizes[last] *= sizes[d];
                (0..operands).for_each(|k| g.strides[row + k] = strides[k][d]);
            } else {
                g.sizes.push(sizes[d]);
                g.strides.extend(strides.iter().map(|s| s[d]));
            }
        }
        g
    }

    /// Keeps the last dimension apart as the columns and merges the others where every operand allows, in the given order.
    pub(crate) fn in_rows(sizes: &[usize], strides: &[&[usize]]) -> Geometry {
        let operands = strides.len();
        let mut g = Geometry { sizes: SmallVec::new(), strides: SmallVec::new(), operands };
        let (&cols, outer) = sizes.split_last().expect("a domain with rows has a dimension");
        for (d, &n) in outer.iter().enumerate().filter(|(_, n)| **n != 1) {
            let last = g.sizes.len().wrapping_sub(1);
            let row = last.wrapping_mul(operands);
            if !g.sizes.is_empty() && (0..operands).all(|k| g.strides[row + k] == strides[k][d] * n) {
                g.sizes[last] *= n;
                (0..operands).for_each(|k| g.strides[row + k] = strides[k][d]);
            } else {
                g.sizes.push(n);
                g.strides.extend(strides.iter().map(|s| s[d]));
            }
        }
        g.sizes.push(cols);
        g.strides.extend(strides.iter().map(|s| s[sizes.len() - 1]));
        g
    }

    /// Cuts the space into tiles of whole rows, as many as `tile` elements hold but at least one.
    pub(crate) fn tiles_of_rows(mut self, tile: usize) -> Tiles {
        while self.ndim() < 2 {
            self.sizes.insert(0, 1);
            self.strides.insert_many(0, std::iter::repeat_n(0, self.operands));
        }
        let cols = self.ndim() - 1;
        let (rows, tile_cols) = (self.sizes[cols - 1], self.sizes[cols]);
        let tile_rows = (tile / tile_cols).clamp(1, rows);
        let row_tiles = rows.div_ceil(tile_rows);
        let count = self.sizes[..cols - 1].iter().product::<usize>() * row_tiles;
        Tiles { geometry: self, tile_rows, tile_cols, row_tiles, col_tiles: 1, count }
    }

    /// Number of merged dimensions.
    pub(crate) fn ndim(&self) -> usize {
        self.sizes.len()
    }

    /// Stride of operand `k` along dimension `d`.
    fn stride(&self, d: usize, k: usize) -> usize {
        self.strides[d * self.operands + k]
    }

    /// Whether all operands are walked front to back without gaps.
    pub(crate) fn is_flat(&self) -> bool {
        self.ndim() == 0 || (self.ndim() == 1 && self.strides.iter().all(|&s| s == 1))
    }

    /// Moves dimension `from` to just before the last one.
    fn make_rows(&mut self, from: usize) {
        let to = self.ndim() - 2;
        self.sizes[from..=to].rotate_left(1);
        let n = self.operands;
        self.strides[from * n..(to + 1) * n].rotate_left(n);
    }

    /// Cuts the space into tiles of at most `tile` elements, or `side * side` if some operand is transposed.
    pub(crate) fn tiles(mut self, tile: usize, side: usize) -> Tiles {
        while self.ndim() < 2 {
            self.sizes.insert(0, 1);
            self.strides.insert_many(0, std::iter::repeat_n(0, self.operands));
        }
        let cols = self.ndim() - 1;
        // Transposed: along some other dimension an operand steps less than along the columns.
        let mut across: Option<(usize, usize)> = None;
        for k in 0..self.operands {
            for d in 0..cols {
                let (s, c) = (self.stride(d, k), self.stride(cols, k));
                if s > 0
                    && s < c
                    && self.sizes[d] >= 8
                    && self.sizes[cols] >= 8
                    && across.is_none_or(|(best, _)| s < best)
                {
                    across = Some((s, d))
                }
            }
        }
        let (tile_rows, tile_cols) = if let Some((_, d)) = across {
            self.make_rows(d);
            let (m, n) = (self.sizes[cols - 1], self.sizes[cols]);
            let r = m.min(side);
            let c = n.min(side * side / r);
            (m.min(side * side / c), c)
        } else {
            let n = self.sizes[cols];
            if n > tile / 2 { (1, piece(n, tile)) } else { ((tile / n).min(self.sizes[cols - 1]), n) }
        };
        let (row_tiles, col_tiles) = (self.sizes[cols - 1].div_ceil(tile_rows), self.sizes[cols].div_ceil(tile_cols));
        let count = self.sizes[..cols - 1].iter().product::<usize>() * row_tiles * col_tiles;
        Tiles { geometry: self, tile_rows, tile_cols, row_tiles, col_tiles, count }
    }
}

/// A space cut into tiles.
pub(crate) struct Tiles {
    geometry: Geometry,
    tile_rows: usize,
    tile_cols: usize,
    row_tiles: usize,
    col_tiles: usize,
    /// How many tiles there are.
    pub(crate) count: usize,
}

/// One tile: where it starts and how large it is.
pub(crate) struct Tile {
    start: SmallVec<[usize; 6]>,
    /// Rows of the tile.
    pub(crate) rows: usize,
    /// Columns of the tile.
    pub(crate) cols: usize,
}

/// The columns of a tile, if a row is cut into equal pieces, so that the last is not a splinter.
fn piece(n: usize, tile: usize) -> usize {
    n.div_ceil(n.div_ceil(tile)).next_multiple_of(64).min(tile)
}

impl Tiles {
    /// Of operands with one dimension: what [`Geometry::new`] and [`Geometry::tiles`] make of them, without looking for more.
    pub(crate) fn of_line(n: usize, strides: &[&[usize]], tile: usize) -> Tiles {
        let operands = strides.len();
        let mut all: SmallVec<[usize; 24]> = SmallVec::from_elem(0, operands);
        all.extend(strides.iter().map(|s| s[0]));
        let geometry = Geometry { sizes: SmallVec::from_slice(&[1, n]), strides: all, operands };
        let tile_cols = if n > tile / 2 { piece(n, tile) } else { n };
        let col_tiles = n.div_ceil(tile_cols);
        Tiles { geometry, tile_rows: 1, tile_cols, row_tiles: 1, col_tiles, count: col_tiles }
    }

    /// Elements of a whole row.
    pub(crate) fn row_len(&self) -> usize {
        self.geometry.sizes.last().copied().unwrap_or(1)
    }

    /// Elements of a full tile.
    pub(crate) fn capacity(&self) -> usize {
        self.tile_rows * self.tile_cols
    }

    /// Tile `t`, columns running fastest.
    pub(crate) fn tile(&self, t: usize) -> Tile {
        let sizes = &self.geometry.sizes;
        let n = sizes.len();
        let mut start = SmallVec::from_elem(0, n);
        let (mut rest, c) = (t / self.col_tiles, t % self.col_tiles);
        start[n - 1] = c * self.tile_cols;
        start[n - 2] = rest % self.row_tiles * self.tile_rows;
        rest /= self.row_tiles;
        for d in (0..n - 2).rev() {
            start[d] = rest % sizes[d];
            rest /= sizes[d];
        }
        let rows = self.tile_rows.min(sizes[n - 2] - start[n - 2]);
        let cols = self.tile_cols.min(sizes[n - 1] - start[n - 1]);
        Tile { start, rows, cols }
    }

    /// Element offset of operand `k` at the start of a tile.
    pub(crate) fn offset(&self, tile: &Tile, k: usize) -> usize {
        tile.start.iter().enumerate().map(|(d, &i)| i * self.geometry.stride(d, k)).sum()
    }

    /// Whether the next tile of operand `k` lies behind this one; not if every row reads the same.
    pub(crate) fn moves_on(&self, k: usize) -> bool {
        self.count > 1 && (self.col_tiles > 1 || self.strides(k)[0] != 0)
    }

    /// Row and column stride of operand `k`.
    pub(crate) fn strides(&self, k: usize) -> [usize; 2] {
        let n = self.geometry.ndim();
        [self.geometry.stride(n - 2, k), self.geometry.stride(n - 1, k)]
    }
}

impl Tile {
    /// Elements of the tile.
    pub(crate) fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether the tile lies in memory without gaps, in order.
    pub(crate) fn is_packed(&self, strides: [usize; 2]) -> bool {
        (self.rows == 1 || strides[0] == self.cols) && (self.cols == 1 || strides[1] == 1)
    }

    /// Whether all elements of the tile are one.
    pub(crate) fn is_splat(&self, strides: [usize; 2]) -> bool {
        (self.rows == 1 || strides[0] == 0) && (self.cols == 1 || strides[1] == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One dimension takes the short way: the tiles are those of the long one.
    #[test]
    fn lines_are_cut_as_all_else_is() {
        for n in [1, 2, 63, 512, 513, 1024, 1025, 5000] {
            for steps in [[1, 1], [1, 0], [3, 1], [2, 5]] {
                let strides: [&[usize]; 2] = [&steps[..1], &steps[1..]];
                let (long, short) =
                    (Geometry::new(&[n], &strides, 0).tiles(1024, 32), Tiles::of_line(n, &strides, 1024));
                assert_eq!((long.count, long.capacity()), (short.count, short.capacity()), "{n}");
                for t in 0..long.count {
                    let (a, b) = (long.tile(t), short.tile(t));
                    assert_eq!((a.rows, a.cols), (b.rows, b.cols));
                    for k in 0..2 {
                        assert_eq!(long.offset(&a, k), short.offset(&b, k));
                        assert!(n == 1 || long.strides(k) == short.strides(k));
                    }
                }
            }
        }
    }

    /// Visits all tiles and counts how often each element of a row-major buffer of `sizes` is met.
    fn visits(sizes: &[usize], strides: &[&[usize]], tile: usize, side: usize) -> Vec<usize> {
        let g = Geometry::new(sizes, strides, 0).tiles(tile, side);
        let mut hits = vec![0; sizes.iter().product()];
        for t in 0..g.count {
            let tile = g.tile(t);
            let (at, [sr, sc]) = (g.offset(&tile, 0), g.strides(0));
            assert!(tile.len() <= g.capacity());
            for r in 0..tile.rows {
                for c in 0..tile.cols {
                    hits[at + r * sr + c * sc] += 1
                }
            }
        }
        hits
    }

    #[test]
    fn every_element_once() {
        let once = |v: Vec<usize>| assert!(v.iter().all(|&h| h == 1));
        once(visits(&[5, 7, 3], &[&[21, 3, 1]], 16, 4));
        once(visits(&[40, 30], &[&[30, 1], &[1, 40]], 64, 8));
        once(visits(&[9, 40, 30], &[&[1200, 30, 1], &[1, 9, 360]], 64, 8));
        once(visits(&[100, 130], &[&[130, 1], &[0, 1]], 64, 8));
        once(visits(&[], &[&[]], 64, 8));
        once(visits(&[2, 3, 4, 5], &[&[60, 20, 5, 1], &[1, 2, 6, 24]], 16, 4));
    }

    #[test]
    fn dimensions_merge_and_follow_the_lead() {
        let g = Geometry::new(&[2, 3, 4], &[&[12, 4, 1], &[12, 4, 1]], 0);
        assert!(g.is_flat());
        let g = Geometry::new(&[4, 3], &[&[1, 4], &[1, 4]], 0); // both transposed alike: flat memory
        assert!(g.is_flat());
        let g = Geometry::new(&[4, 1, 3], &[&[3, 3, 1], &[0, 7, 1]], 0);
        assert_eq!(g.ndim(), 2);
    }
}
