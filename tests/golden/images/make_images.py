"""Pictures of every kind that data/images reads, and what Pillow makes of them: make_images.py FOLDER.

Made with Pillow 13.0.0. Of each file expected.tsv has the size and the FNV-1a hash of convert("RGB")'s bytes; then the hashes of
crops of rgb.png that are resized. The same command makes the same expected.tsv again. Pillow writes no
arithmetic codes: arithmetic/rgb.jpg is `jpegtran -arithmetic rgb.jpg`.
"""
import pathlib
import sys

import numpy as np
from PIL import Image


def fnv(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def picture(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x * 7 + y * 3, x * x + 5 * y, x * y + 11 * x], -1).astype(np.uint8))


folder = pathlib.Path(sys.argv[1])
rgb = picture(37, 23)
alpha = Image.fromarray((np.mgrid[0:23, 0:37][0] * 11).astype(np.uint8))
with_alpha, grey = rgb.copy(), rgb.convert("L")
with_alpha.putalpha(alpha)
two = grey.copy()
two.putalpha(alpha)
deep = Image.fromarray((np.mgrid[0:23, 0:37][1] * 1771 + 129).astype(np.uint16))
rgb.save(folder / "rgb.png")
rgb.save(folder / "rgb.jpg", quality=85)
rgb.save(folder / "progressive.jpg", quality=70, progressive=True, subsampling=0)
grey.save(folder / "grey.jpg")
rgb.convert("CMYK").save(folder / "cmyk.jpg", quality=90)
grey.save(folder / "grey.png")
grey.convert("1").save(folder / "bits.png")
with_alpha.save(folder / "alpha.png")
two.save(folder / "grey_alpha.png")
rgb.quantize(16).save(folder / "palette.png", transparency=3)
deep.save(folder / "deep.png")
with open(folder / "expected.tsv", "w", encoding="ascii") as table:
    for file in sorted(folder.glob("*.[jp][pn]g")):
        read = Image.open(file)
        if read.mode == "I;16":  # Pillow would cut its numbers off at 255; their upper halves are meant
            read = Image.fromarray((np.asarray(read) >> 8).astype(np.uint8))
        read = read.convert("RGB")
        table.write(f"{file.name}\t{read.width}\t{read.height}\t{fnv(read.tobytes())}\n")
    for box, size, way in [((0, 0, 37, 23), (8, 8), 2), ((0, 0, 37, 23), (16, 10), 3), ((5, 3, 25, 20), (9, 9), 2),
                           ((5, 3, 25, 20), (40, 31), 3), ((0, 0, 37, 23), (37, 11), 2), ((1, 2, 11, 9), (10, 7), 2)]:
        part = rgb.crop(box).resize(size, way)
        words = [*box, *size, way, fnv(part.tobytes())]
        table.write("resize\t" + "\t".join(str(word) for word in words) + "\n")
