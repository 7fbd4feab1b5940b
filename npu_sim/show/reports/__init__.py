"""Reports: one HTML file without external resources, for light and dark mode and for print.

Every number in a picture is also in the JSON of the same call. A report is a
:class:`~npu_sim.show.reports.document.Document`; :func:`~npu_sim.show.reports.html.render` turns it
into HTML.
"""
