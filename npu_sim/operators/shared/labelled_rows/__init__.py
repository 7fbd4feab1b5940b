"""What CrossEntropyLoss and its gradient share: rows of classes, each with a label."""
