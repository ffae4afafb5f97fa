"""Keep batches in segments: files, their indexes, and the list of a log.

Doors: `segment_list` is all segments of a log, `segment` one of them.
"""
