# %%vswap in IPython, as in a cell of a notebook.
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "vswap")
cell = """held = [b'%d' % n * 100 for n in range(300_000)]
print(sum(held[n] == b'%d' % n * 100 for n in range(300_000)), 'right')
"""
shell.run_cell_magic("vswap", "--ram 64M", cell)
shell.run_cell_magic("vswap", "--ram 64M --swap none -- perl -w", "print 'from perl'")
