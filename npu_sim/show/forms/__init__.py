"""What every view is made of: text for terminals, HTML pages, SVG pictures and curves."""
